//! Serves bytes at a port, or gets them: `transfer serve`, `transfer get HOST`.

use std::io::{copy, sink, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

const PORT: u16 = 7777;
const SIZE: usize = 1_000_000;

fn serve() -> Result<()> {
    for connection in TcpListener::bind(("0.0.0.0", PORT))?.incoming() {
        connection?.write_all(&vec![0; SIZE])?;
    }
    Ok(())
}

fn get(host: &str) -> Result<()> {
    let begin = Instant::now();
    let count = copy(&mut TcpStream::connect((host, PORT))?, &mut sink())?;
    println!("{count} bytes in {} ms", begin.elapsed().as_millis());
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    match words[1].as_str() {
        "serve" => serve(),
        _ => get(&words[2]),
    }
}
