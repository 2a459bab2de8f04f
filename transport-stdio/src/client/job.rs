//! A child and the processes that it starts, on Windows: a job object.
//!
//! The job ends with its last handle, and the only one is ours: processes of the job do not survive this process. A process
//! that the child starts in the moment before it is put into the job escapes it. There is no signal that asks a process
//! without a window to end, so after the end of its input the next step is the last one.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::process::{Child, Command};
use std::ptr::null;

use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation, SetInformationJobObject,
    TerminateJobObject,
};

use super::child::Leader;

/// A job object.
pub(super) struct Group(OwnedHandle);

#[expect(unsafe_code, reason = "the standard library knows no job objects")]
impl Group {
    pub(super) fn of(leader: &Child) -> io::Result<Self> {
        // SAFETY: both arguments may be null: default security, no name.
        let job = unsafe { CreateJobObjectW(null(), null()) };
        if job.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just made, it is not null, and nobody else owns it.
        let job = unsafe { OwnedHandle::from_raw_handle(job) };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let size = u32::try_from(size_of_val(&limits)).map_err(io::Error::other)?;
        let kind = JobObjectExtendedLimitInformation;
        // SAFETY: the handle is open, and the pointer is to a structure of this kind and size, which is only read.
        let set = unsafe { SetInformationJobObject(job.as_raw_handle(), kind, (&raw const limits).cast(), size) };
        if set == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both handles are open: the job is ours, the process is the caller's.
        let assigned = unsafe { AssignProcessToJobObject(job.as_raw_handle(), leader.as_raw_handle()) };
        if assigned == 0 { Err(io::Error::last_os_error()) } else { Ok(Self(job)) }
    }

    /// Waits for the leader's end. Its handle, not its id, is what names it, so it can be waited for again.
    pub(super) fn wait_for_leader(&self, leader: &mut Child) -> Leader {
        let _told_again_later = leader.wait();
        Leader::Ended
    }

    /// Nothing can: the end of its input has asked already.
    #[expect(clippy::unused_self, reason = "elsewhere there is a signal for it")]
    pub(super) fn ask_to_end(&self) {}

    pub(super) fn kill(&self) {
        // SAFETY: the handle is open. Whether anybody was left does not matter.
        let _gone = unsafe { TerminateJobObject(self.0.as_raw_handle(), 1) };
    }
}

/// The job takes the child in once it runs.
pub(super) fn prepare(_command: &mut Command) {}
