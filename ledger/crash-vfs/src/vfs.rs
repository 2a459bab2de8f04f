//! The table of functions that SQLite calls, over the one that it has for this system.
#![allow(unsafe_code, reason = "SQLite's file layer is a table of C functions that get raw pointers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr;
use std::sync::Arc;

use rusqlite::ffi::{self, sqlite3_file, sqlite3_filename, sqlite3_io_methods, sqlite3_vfs};

use crate::disk::{Answer, Call, Disk, Event, Kind};

/// A file of ours. SQLite allocates it, with the system's own file right behind it.
#[repr(C)]
struct File {
    /// SQLite reads this one only.
    base: sqlite3_file,
    inner: Inner,
}

struct Inner {
    disk: Disk,
    kind: Kind,
    /// None for a temporary file, which no crash can show.
    name: Option<Arc<str>>,
}

const _: () = assert!(size_of::<File>().is_multiple_of(8), "the file behind it needs the alignment that SQLite gives");

/// What a file layer of ours knows: the disk, and the system's own layer.
struct App {
    disk: Disk,
    real: *mut sqlite3_vfs,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // Without the third version SQLite maps no database into memory, so that every change of one is a write.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Registers a file layer for this disk.
pub(crate) fn register(disk: Disk, name: &str) {
    let name = CString::new(name).expect("a name without a zero byte");
    // SAFETY: SQLite initialises itself; null asks for the default layer, which lives as long as the process.
    let real = unsafe {
        assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
        ffi::sqlite3_vfs_find(ptr::null())
    };
    assert!(!real.is_null(), "SQLite has a file layer of its own");
    // SAFETY: not null, and valid as said above.
    let (file_size, path_size) = unsafe { ((*real).szOsFile, (*real).mxPathname) };
    let ours = sqlite3_vfs {
        iVersion: 2,
        szOsFile: file_size + c_int::try_from(size_of::<File>()).expect("some dozens of bytes"),
        mxPathname: path_size,
        pNext: ptr::null_mut(),
        zName: name.into_raw(),
        pAppData: Box::into_raw(Box::new(App { disk, real })).cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: None,
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: Some(current_time),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    };
    // SAFETY: the table, its name and its data are leaked, so they outlive every use; 0 keeps the default layer.
    let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 0) };
    assert_eq!(registered, ffi::SQLITE_OK, "SQLite takes the layer in");
}

/// Our part of a file.
///
/// # Safety
///
/// `file` must be one that [`open`] filled in and [`close`] has not seen. SQLite uses a file from one thread at a time.
unsafe fn inner<'a>(file: *mut sqlite3_file) -> &'a Inner {
    // SAFETY: such a file is a whole `File`; nobody writes to it between its opening and its end.
    unsafe { &(*file.cast::<File>()).inner }
}

/// The system's own file behind ours.
///
/// # Safety
///
/// As for [`inner`]; before the end of [`open`] it may be used to open it only.
unsafe fn behind(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: the allocation is `szOsFile` bytes, which is ours and the system's behind it.
    unsafe { file.cast::<File>().add(1).cast() }
}

/// Calls a function of the system's own file.
macro_rules! forward {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let real = behind($file);
        match (*(*real).pMethods).$method {
            Some(method) => method(real $(, $argument)*),
            None => ffi::SQLITE_IOERR,
        }
    }};
}

/// Asks the hook, and ends the call unless it is to be done.
macro_rules! ask {
    ($inner:expr, $call:expr) => {
        match $inner.disk.answer($call, $inner.kind) {
            Answer::Do => {}
            Answer::Pretend => return ffi::SQLITE_OK,
            Answer::Fail(code) => return code,
        }
    };
}

impl Inner {
    fn push(&self, event: impl FnOnce(Arc<str>) -> Event) {
        if let Some(name) = &self.name {
            self.disk.push(|| event(Arc::clone(name)));
        }
    }
}

/// A file's name without its folder.
///
/// # Safety
///
/// `path` is null or a string that ends with a zero byte.
unsafe fn base_name(path: *const c_char) -> Option<Arc<str>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    Some(path.rsplit('/').next().unwrap_or(&path).into())
}

fn kind_of(name: Option<&str>, flags: c_int) -> Kind {
    match name {
        Some(_) if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 => Kind::Database,
        Some(_) if flags & ffi::SQLITE_OPEN_WAL != 0 => Kind::Wal,
        Some(_) | None => Kind::Other,
    }
}

// SAFETY of all functions below: SQLite alone calls them, with the pointers that its documentation of `sqlite3_vfs` and
// `sqlite3_io_methods` promises, so that what they hand on to the system's own layer is what that one may expect.

/// What the layer knows.
///
/// # Safety
///
/// `vfs` must be one that [`register`] made.
unsafe fn app<'a>(vfs: *mut sqlite3_vfs) -> &'a App {
    // SAFETY: its data is a leaked `App`.
    unsafe { &*(*vfs).pAppData.cast::<App>() }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    path: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: see above. `file` is uninitialised memory of `szOsFile` bytes, so it is written whole, and not read.
    unsafe {
        let App { disk, real } = app(vfs);
        let name = base_name(path);
        let kind = kind_of(name.as_deref(), flags);
        // Without methods SQLite takes the file for one that needs no close.
        (*file).pMethods = ptr::null();
        match disk.answer(Call::Open, kind) {
            Answer::Do => {}
            Answer::Pretend => return ffi::SQLITE_CANTOPEN,
            Answer::Fail(code) => return code,
        }
        let done = match (**real).xOpen {
            Some(method) => method(*real, path, behind(file), flags, out),
            None => return ffi::SQLITE_CANTOPEN,
        };
        if done == ffi::SQLITE_OK {
            let base = sqlite3_file { pMethods: &raw const METHODS };
            ptr::write(file.cast::<File>(), File { base, inner: Inner { disk: *disk, kind, name } });
        }
        done
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, path: *const c_char, synced: c_int) -> c_int {
    // SAFETY: see above.
    unsafe {
        let App { disk, real } = app(vfs);
        let name = base_name(path);
        let kind = if name.as_deref().is_some_and(|name| name.ends_with("-wal")) { Kind::Wal } else { Kind::Other };
        match disk.answer(Call::Delete, kind) {
            Answer::Do => {}
            Answer::Pretend => return ffi::SQLITE_OK,
            Answer::Fail(code) => return code,
        }
        let Some(method) = (**real).xDelete else { return ffi::SQLITE_IOERR };
        // Its own sync of the folder is left out.
        let done = method(*real, path, 0);
        if let Some(file) = name.filter(|_| done == ffi::SQLITE_OK) {
            disk.push(|| Event::Delete { file, synced: synced != 0 });
        }
        done
    }
}

/// Hands a call of a file layer on to the system's own.
macro_rules! forward_vfs {
    ($($name:ident as $method:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs $(, $argument: $type)*) -> c_int {
            // SAFETY: see above.
            unsafe {
                let real = app(vfs).real;
                match (*real).$method {
                    Some(method) => method(real $(, $argument)*),
                    None => ffi::SQLITE_ERROR,
                }
            }
        }
    )*};
}

forward_vfs! {
    access as xAccess(path: *const c_char, flags: c_int, out: *mut c_int);
    full_pathname as xFullPathname(path: *const c_char, size: c_int, out: *mut c_char);
    randomness as xRandomness(size: c_int, out: *mut c_char);
    last_error as xGetLastError(size: c_int, out: *mut c_char);
    current_time as xCurrentTimeInt64(out: *mut i64);
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, micros: c_int) -> c_int {
    // SAFETY: see above.
    unsafe {
        let App { disk, real } = app(vfs);
        match (disk.answer(Call::Sleep, Kind::Other), (**real).xSleep) {
            (Answer::Do, Some(method)) => method(*real, micros),
            (Answer::Do | Answer::Pretend | Answer::Fail(_), _) => micros,
        }
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see above. This is the last call for the file, so our part is dropped here and once.
    unsafe {
        let done = forward!(file, xClose);
        ptr::drop_in_place(file.cast::<File>());
        done
    }
}

unsafe extern "C" fn read(file: *mut sqlite3_file, out: *mut c_void, size: c_int, at: i64) -> c_int {
    // SAFETY: see above.
    unsafe {
        ask!(inner(file), Call::Read);
        forward!(file, xRead, out, size, at)
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, data: *const c_void, size: c_int, at: i64) -> c_int {
    // SAFETY: see above; `data` is `size` bytes.
    unsafe {
        let inner = inner(file);
        ask!(inner, Call::Write);
        let done = forward!(file, xWrite, data, size, at);
        if done == ffi::SQLITE_OK {
            let bytes = std::slice::from_raw_parts(data.cast::<u8>(), usize::try_from(size).unwrap_or(0));
            let at = u64::try_from(at).unwrap_or(0);
            inner.push(|file| Event::Write { file, at, bytes: bytes.to_vec() });
        }
        done
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: see above.
    unsafe {
        let inner = inner(file);
        ask!(inner, Call::Truncate);
        let done = forward!(file, xTruncate, size);
        if done == ffi::SQLITE_OK {
            inner.push(|file| Event::Truncate { file, size: u64::try_from(size).unwrap_or(0) });
        }
        done
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: see above.
    let inner = unsafe { inner(file) };
    match inner.disk.answer(Call::Sync, inner.kind) {
        Answer::Do => inner.push(|file| Event::Sync { file }),
        Answer::Pretend => {}
        Answer::Fail(code) => {
            inner.push(|file| Event::LostSync { file });
            return code;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: see above.
    unsafe { forward!(file, xFileSize, out) }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: see above.
    unsafe {
        ask!(inner(file), Call::Lock);
        forward!(file, xLock, level)
    }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: see above.
    unsafe { forward!(file, xUnlock, level) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: see above.
    unsafe { forward!(file, xCheckReservedLock, out) }
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: see above.
    unsafe { forward!(file, xFileControl, op, argument) }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see above.
    unsafe { forward!(file, xSectorSize) }
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see above.
    unsafe { forward!(file, xDeviceCharacteristics) }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        match inner(file).disk.answer(Call::ShmMap, inner(file).kind) {
            Answer::Do | Answer::Pretend => forward!(file, xShmMap, page, size, extend, out),
            Answer::Fail(code) => code,
        }
    }
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: see above. A lock that is given back is always given back, or SQLite's own count of them would be wrong.
    unsafe {
        let inner = inner(file);
        if flags & ffi::SQLITE_SHM_LOCK != 0 {
            ask!(inner, Call::ShmLock);
        } else {
            let _given_back_all_the_same = inner.disk.answer(Call::ShmUnlock, inner.kind);
        }
        forward!(file, xShmLock, offset, count, flags)
    }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: see above.
    unsafe {
        let real = behind(file);
        if let Some(method) = (*(*real).pMethods).xShmBarrier {
            method(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: see above.
    unsafe { forward!(file, xShmUnmap, delete) }
}
