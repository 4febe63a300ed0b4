// Transfers bytes over quic-go: `serve`, or `get HOST BYTES`.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
)

const port = "4433"

func main() {
	log.SetFlags(0)
	var err error
	if len(os.Args) == 4 && os.Args[1] == "get" {
		err = get(os.Args[2], os.Args[3])
	} else {
		err = serve()
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve() error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	settings := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"bytes"}}
	listener, err := quic.ListenAddr(":"+port, settings, nil)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go answer(connection)
	}
}

func answer(connection *quic.Conn) {
	stream, err := connection.AcceptStream(context.Background())
	if err != nil {
		return
	}
	var count uint64
	if binary.Read(stream, binary.BigEndian, &count) == nil {
		stream.Write(make([]byte, count))
		stream.Close()
	}
}

func get(host, bytes string) error {
	count, err := strconv.ParseUint(bytes, 10, 32)
	if err != nil {
		return err
	}
	settings := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"bytes"}}
	connection, err := quic.DialAddr(context.Background(), net.JoinHostPort(host, port), settings, nil)
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0, "")
	stream, err := connection.OpenStreamSync(context.Background())
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := binary.Write(stream, binary.BigEndian, count); err != nil {
		return err
	}
	stream.Close()
	got, err := io.Copy(io.Discard, stream)
	if err != nil {
		return err
	}
	if uint64(got) != count {
		return fmt.Errorf("%d of %d bytes came", got, count)
	}
	fmt.Printf("%d bytes in %v\n", got, time.Since(begin))
	return nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	names := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	encoded, err := x509.CreateCertificate(rand.Reader, names, names, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{encoded}, PrivateKey: key}, err
}
