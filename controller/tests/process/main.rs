//! The built binary: on a dump and on a live cluster.

mod chart;
mod commands;
mod dump;
mod image;
mod live;
mod monitoring;
mod page;
mod upgrade;
mod values;

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn operator(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipam-operator"));
    command.args(args).current_dir(repo("."));
    command.env("IPAM_OPERATOR_ADMIN_LISTEN", "127.0.0.1:0").env("IPAM_OPERATOR_LEADER_ELECT", "false");
    command
}

/// An operator that runs, and what it says on standard error.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.env("NO_COLOR", "1").stderr(Stdio::piped()).spawn().expect("runs");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        Self { child, lines }
    }

    /// Reads on until a line contains `part`.
    fn says(&mut self, part: &str) -> String {
        let mut said = Vec::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            if line.contains(part) {
                return line;
            }
            said.push(line);
        }
        panic!("ended without saying {part:?}: {said:#?}")
    }

    /// Where it serves metrics and probes; asked again, where it serves explanations.
    fn address(&mut self) -> String {
        let line = self.says("address=");
        line.split("address=").nth(1).and_then(|a| a.split_whitespace().next()).expect("an address").to_owned()
    }

    /// As a crash.
    fn kill(&mut self) {
        self.child.kill().expect("killed");
        drop(self.child.wait());
    }

    fn stop(&mut self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("runs");
        assert!(done.success() && self.child.wait().expect("ends").success(), "{signal} is a clean end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn get(address: &str, path: &str) -> Option<(String, String)> {
    get_as(address, path, "*/*")
}

/// The first line and the body of an answer, for whoever accepts this.
fn get_as(address: &str, path: &str, accept: &str) -> Option<(String, String)> {
    let (head, body) = ask(address, "GET", path, accept, "localhost")?;
    Some((head.lines().next()?.to_owned(), body))
}

/// The head and the body of an answer (HTTP/1.0, so that a long one comes as it is) to whoever calls it by this name.
fn ask(address: &str, method: &str, path: &str, accept: &str, host: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\nAccept: {accept}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}
