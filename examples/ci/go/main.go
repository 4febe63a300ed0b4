// Serves bytes at a port, or gets them: `transfer serve`, `transfer get HOST`.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"
)

const port, size = "7777", 1_000_000

func serve() error {
	listener, err := net.Listen("tcp4", ":"+port)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			connection.Write(make([]byte, size))
		}()
	}
}

func get(host string) error {
	begin := time.Now()
	connection, err := net.Dial("tcp4", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	defer connection.Close()
	count, err := io.Copy(io.Discard, connection)
	fmt.Printf("%d bytes in %d ms\n", count, time.Since(begin).Milliseconds())
	return err
}

func main() {
	var err error
	if os.Args[1] == "serve" {
		err = serve()
	} else {
		err = get(os.Args[2])
	}
	if err != nil {
		log.Fatal(err)
	}
}
