//! Decides whether a file lies on a file system that other machines share. There a write-ahead log loses commits: its
//! index is memory that all processes have to share, and locks may hold on one machine only.

use std::path::{Path, PathBuf};

use crate::error::LedgerError;

/// The types of such file systems, as Linux names them.
const NETWORK: [&str; 22] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.glusterfs",
    "fuse.juicefs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "ocfs2",
    "smb3",
    "smbfs",
];

/// Refuses a path on a network file system. Where the system does not say what is mounted, nothing is refused.
pub(crate) fn check(path: &Path) -> Result<(), LedgerError> {
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else { return Ok(()) };
    // The file need not be there yet. Links are followed, as SQLite does.
    let found = path.canonicalize().or_else(|_| path.parent().map_or(Ok(PathBuf::new()), Path::canonicalize));
    let Ok(found) = found else { return Ok(()) };
    match network_type(&found, &mounts) {
        Some(kind) => Err(LedgerError::NetworkFileSystem { kind: kind.into() }),
        None => Ok(()),
    }
}

/// The type of the file system that holds `path`, if it is a network file system by this table of mounts, which is in
/// the format of `/proc/self/mountinfo` (see proc(5)).
fn network_type(path: &Path, mounts: &[u8]) -> Option<&'static str> {
    let mut nearest: Option<(usize, &[u8])> = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let Some(point) = fields.nth(4).map(unescape) else { continue };
        let Some(kind) = fields.by_ref().skip_while(|field| *field != b"-").nth(1) else { continue };
        let point = Path::new(&*point);
        // A later mount at the same place hides the earlier one.
        let depth = point.components().count();
        if path.starts_with(point) && nearest.is_none_or(|(known, _)| known <= depth) {
            nearest = Some((depth, kind));
        }
    }
    let (_, kind) = nearest?;
    NETWORK.into_iter().find(|network| network.as_bytes() == kind)
}

/// A path without the escapes of the table: `\040` for a space, and so on.
fn unescape(field: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = if *first == b'\\' { after.get(..3).and_then(octal) } else { None };
        bytes.push(octal.unwrap_or(*first));
        rest = after.get(if octal.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:50 / /srv rw,relatime shared:1 master:2 - nfs4 host:/srv rw,vers=4.2
41 40 0:51 / /srv/fast rw,relatime - xfs /dev/vdb rw
42 27 0:52 / /mnt/team\\040share rw - cifs //host/share rw
43 27 0:53 / /home rw - fuse.sshfs host: rw
44 27 0:54 / /home rw - ext4 /dev/vdc rw
45 27 0:55 / /data rw - ext4 /dev/vdd rw
46 27 0:56 / /data rw - nfs host:/data rw
47 27 0:57 / /odd\\04
";

    #[test]
    fn the_nearest_and_latest_mount_counts() {
        let rows = [
            ("/var/lib/shop.db", None),
            ("/srv/shop.db", Some("nfs4")),
            ("/srv/fast/shop.db", None),
            ("/srv/fastest/shop.db", Some("nfs4")),
            ("/srvice/shop.db", None),
            ("/mnt/team share/a/shop.db", Some("cifs")),
            ("/home/shop.db", None),
            ("/data/shop.db", Some("nfs")),
        ];
        for (path, kind) in rows {
            assert_eq!(network_type(Path::new(path), MOUNTS.as_bytes()), kind, "{path}");
        }
    }

    #[test]
    fn a_table_that_makes_no_sense_refuses_nothing() {
        for table in [&b""[..], b"\n \n", b"1 2 3 4 / - ", b"1 2 3 4 / rw -", b"\xff\xff", b"a b c d \\999 e - nfs"] {
            assert_eq!(network_type(Path::new("/srv/shop.db"), table), None, "{table:?}");
        }
    }

    #[test]
    fn a_local_folder_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(&dir.path().join("shop.db")).is_ok());
        assert!(check(&dir.path().join("missing/shop.db")).is_ok(), "that is for SQLite to say");
    }
}
