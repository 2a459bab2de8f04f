//! Standard streams of every kind: pipes are in every other test; here sockets, files, the null device and a terminal.
#![cfg(unix)]

mod support;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use support::{Peer, call, fixture};

#[test]
fn sockets_as_node_hosts_give_them() {
    let (input, child_input) = UnixStream::pair().expect("a pair");
    let (output, child_output) = UnixStream::pair().expect("a pair");
    let child = fixture()
        .stdin(Stdio::from(OwnedFd::from(child_input)))
        .stdout(Stdio::from(OwnedFd::from(child_output)))
        .spawn()
        .expect("the fixture starts");
    let mut peer = Peer::over(child, input, output);
    peer.send(&call(1, "count", r#"{"to":1000}"#));
    assert_eq!(peer.until_answer("1").len(), 1001);
    peer.close_input();
    assert!(peer.exit().success());
}

#[test]
fn one_socket_for_both() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let child = fixture()
        .stdin(Stdio::from(OwnedFd::from(theirs.try_clone().expect("a second handle"))))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .expect("the fixture starts");
    let mut peer = Peer::over(child, ours.try_clone().expect("a second handle"), ours);
    assert_eq!(peer.ping(1).len(), 1);
}

#[test]
fn files_in_and_out() {
    let dir = std::env::temp_dir().join(format!("steady-stdio-files-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (from, to) = (dir.join("in"), dir.join("out"));
    let requests: String = (1..=200).map(|id| call(id, "echo", r#"{"text":"filed"}"#) + "\n").collect();
    std::fs::write(&from, requests).expect("written");
    let status = fixture()
        .stdin(File::open(&from).expect("opened"))
        .stdout(File::create(&to).expect("created"))
        .status()
        .expect("the fixture runs");
    let written = std::fs::read_to_string(&to).expect("read");
    std::fs::remove_dir_all(&dir).expect("removed");
    assert!(status.success());
    assert_eq!(written.lines().count(), 200);
    assert!(written.lines().all(|line| line.contains("filed")));
}

#[test]
fn null_devices_end_at_once() {
    let status = fixture().stdin(Stdio::null()).stdout(Stdio::null()).status().expect("the fixture runs");
    assert!(status.success());
}

#[test]
fn a_terminal() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("ours");
    let name = ptsname(&controller, Vec::new()).expect("a name").into_string().expect("text");
    let terminal = File::options().read(true).write(true).open(name).expect("opened");
    // Without echo, so that what comes back is what the server wrote.
    let mut mode = rustix::termios::tcgetattr(&terminal).expect("a mode");
    mode.local_modes.remove(rustix::termios::LocalModes::ECHO);
    rustix::termios::tcsetattr(&terminal, rustix::termios::OptionalActions::Now, &mode).expect("set");
    let child = fixture()
        .stdin(terminal.try_clone().expect("a second handle"))
        .stdout(terminal)
        .spawn()
        .expect("the fixture starts");
    let controller = File::from(controller);
    let mut peer = Peer::over(child, controller.try_clone().expect("a second handle"), controller);
    assert_eq!(peer.ping(1).len(), 1);
    // Ctrl-D at the start of a line is the end of input.
    peer.send_bytes(b"\x04");
    assert!(peer.exit().success());
}

#[test]
fn others_who_share_the_pipe_keep_their_blocking_mode() {
    // A second reader of the same pipe, as in `(server; other) < pipe`: the server must not make it non-blocking.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let shared = File::from(OwnedFd::from(reader.try_clone().expect("a second handle")));
    let mut out = tempfile();
    let mut child = fixture().stdin(reader).stdout(out.try_clone().expect("a second handle")).spawn().expect("started");
    writer.write_all((call(1, "echo", r#"{"text":"shared"}"#) + "\n").as_bytes()).expect("written");
    // The answer is in the file, so the server has set up its streams.
    let start = std::time::Instant::now();
    loop {
        let mut text = String::new();
        out.rewind().and_then(|()| out.read_to_string(&mut text)).expect("read");
        if text.contains("shared") {
            break;
        }
        assert!(start.elapsed() < support::GUARD, "no answer");
        std::thread::yield_now();
    }
    let flags = rustix::fs::fcntl_getfl(&shared).expect("flags");
    assert_eq!(flags.contains(rustix::fs::OFlags::NONBLOCK), !cfg!(target_os = "linux"));
    drop(writer);
    assert!(child.wait().expect("a child of ours").success());
}

fn tempfile() -> File {
    let path = std::env::temp_dir().join(format!("steady-stdio-shared-{}", std::process::id()));
    let file = File::options().read(true).append(true).create(true).open(&path).expect("created");
    std::fs::remove_file(path).expect("unlinked");
    file
}
