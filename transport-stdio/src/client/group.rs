//! A child and the processes that it starts, on Unix: a process group of its own.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, waitid};

use super::child::Leader;

/// A process group. Its id is its leader's, and nobody else's until the leader is reaped.
pub(super) struct Group(Pid);

impl Group {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(super) fn of(leader: &Child) -> std::io::Result<Self> {
        Ok(Self(Pid::from_child(leader)))
    }

    /// Waits for the leader's end, and does not reap it.
    pub(super) fn wait_for_leader(&self, _leader: &mut Child) -> Leader {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(self.0), options) {
                Ok(_) => return Leader::Ended,
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => return Leader::ReapedElsewhere,
                Err(_) => return Leader::CannotTell,
            }
        }
    }

    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // There may be nobody left, or nobody who may be told.
        let _gone = kill_process_group(self.0, signal);
        // A leader can leave its group. One that did not must hear each signal once: servers count them.
        if getpgid(Some(self.0)).is_ok_and(|group| group != self.0) {
            let _gone = kill_process(self.0, signal);
        }
    }
}

pub(super) fn prepare(command: &mut Command) {
    command.process_group(0);
    #[cfg(target_os = "linux")]
    super::orphan::die_with_parent(command);
}
