//! A child that dies with its parent (Linux).
//!
//! The kernel sends the parent-death signal when the **thread** that forked ends, which is why all children are spawned
//! from one thread that never does.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the kernel kill the child when the thread that spawns it ends.
#[expect(unsafe_code, reason = "the standard library offers nothing else to run between fork and exec")]
pub(super) fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let in_child = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that call: nobody would send the signal then.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: between fork and exec only what is async-signal-safe may run. The closure makes two system calls, prctl and
    // getppid, takes no lock, allocates nothing (`Errno` and the `io::Error` made of it are plain numbers), and touches no
    // memory but the copied `parent`.
    unsafe {
        command.pre_exec(in_child);
    }
}
