//! Runs the program in a network. `cargo test` needs no root, and two runs are equal.

use std::process::Command;

#[test]
fn transfer() {
    let command = ["./target/debug/transfer", "get", "h2"];
    let done = Command::new("outcast")
        .args(["exec", "net.yaml", "--host", "h1", "--"])
        .args(command)
        .output()
        .expect("outcast is not installed");
    let said = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    assert!(said.starts_with("1000000 bytes in "), "{said}{errors}");
}
