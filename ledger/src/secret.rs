//! Decides what is stored in place of arguments: keyed hashes, so that a stolen file does not let small amounts or
//! telephone numbers be guessed.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use steady_core::idempotency::{Key, Scope};

/// The key of a ledger's fingerprints: 32 bytes that nobody else knows.
///
/// It never appears in `Debug` output or in an error.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret with these bytes. They must be random, and the same at every open of a file.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What a call is compared by. `canonical` carries its own version.
    pub(crate) fn fingerprint(&self, scope: &Scope, version: u32, canonical: &[u8]) -> [u8; 32] {
        self.hash(
            b"fingerprint",
            &[&version.to_be_bytes(), scope.principal.as_bytes(), scope.operation.as_bytes(), canonical],
        )
    }

    /// What the creation of a task is compared by, for a call of this fingerprint: not what the call itself is, as a task
    /// and a result are no answer to each other.
    pub(crate) fn creation(&self, fingerprint: &[u8; 32]) -> [u8; 32] {
        self.hash(b"task", &[fingerprint])
    }

    /// What a stored result is verified by. It binds the bytes to their call and their state.
    pub(crate) fn digest(&self, fingerprint: &[u8; 32], state: u8, body: &[u8]) -> [u8; 32] {
        self.hash(b"result", &[fingerprint, &[state], body])
    }

    /// What a result is sealed with whose digest a database has to make by itself: it opens no other result.
    #[cfg(feature = "postgres")]
    pub(crate) fn result_key(&self, fingerprint: &[u8; 32], state: u8) -> [u8; 32] {
        self.hash(b"result key", &[fingerprint, &[state]])
    }

    /// A number for a key, which others can share.
    #[cfg(feature = "postgres")]
    pub(crate) fn lock(&self, scope: &Scope, key: &Key) -> i64 {
        let parts = [scope.principal.as_bytes(), scope.operation.as_bytes(), key.as_str().as_bytes()];
        let hash = self.hash(b"lock", &parts);
        i64::from_be_bytes(hash.first_chunk().copied().unwrap_or_default())
    }

    /// The key that another system gets for a key of this ledger.
    pub(crate) fn upstream_key(&self, scope: &Scope, key: &Key) -> Box<str> {
        base32(
            &self.hash(b"upstream", &[scope.principal.as_bytes(), scope.operation.as_bytes(), key.as_str().as_bytes()]),
        )
    }

    /// The key that another system gets for a message of a key.
    pub(crate) fn message_key(&self, scope: &Scope, key: &Key, ordinal: u32) -> Box<str> {
        let Scope { principal, operation } = scope;
        let parts = [principal.as_bytes(), operation.as_bytes(), key.as_str().as_bytes(), &ordinal.to_be_bytes()];
        base32(&self.hash(b"message", &parts))
    }

    /// What tells whether a file was made with this secret.
    pub(crate) fn check(&self) -> [u8; 32] {
        self.hash(b"check", &[])
    }

    /// The keyed hash of a label and parts, each with its length in front.
    fn hash(&self, label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        // The key of HMAC is a whole block; a shorter one is padded with zeros.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(b"mcp-steady ledger\0");
        for part in [label].iter().chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// The first 200 bits in 40 characters, in the alphabet of RFC 4648 in lower case.
fn base32(hash: &[u8; 32]) -> Box<str> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digit = |index: usize| {
        let bit = index * 5;
        let pair = u16::from_be_bytes([hash[bit / 8], hash[bit / 8 + 1]]);
        char::from(ALPHABET[usize::from(pair >> (11 - bit % 8)) % 32])
    };
    (0..40).map(digit).collect::<String>().into()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frozen: a changed byte here means that keys in existing files no longer match.
    #[test]
    fn golden_fingerprint() {
        let secret = Secret::new([7; 32]);
        let fingerprint = secret.fingerprint(&Scope::new("tenant-1", "reserve"), 1, b"fp1oe");
        let hex: String = fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "2da4571187f1cf41015f294b3e790b69ad8f78ec4614f08b8f9e24ae12e905e3");
    }

    /// Frozen, as above.
    #[test]
    fn golden_creation() {
        let creation = Secret::new([7; 32]).creation(&[1; 32]);
        let hex: String = creation.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "2a0ae5a379d5b8c730ff5dc0d09565f6257dbbf56dfb6dafb995f3949ec5cbdf");
    }

    #[test]
    fn neighbouring_parts_do_not_run_together() {
        let secret = Secret::new([7; 32]);
        let of = |principal, operation| secret.fingerprint(&Scope::new(principal, operation), 1, b"fp1oe");
        assert_ne!(of("ab", "c"), of("a", "bc"));
        assert_ne!(of("a", "b"), of("b", "a"));
        let scope = Scope::new("a", "b");
        assert_ne!(secret.fingerprint(&scope, 1, b"fp1oe"), secret.fingerprint(&scope, 2, b"fp1oe"));
        assert_ne!(secret.digest(&[0; 32], 2, b"x"), secret.digest(&[0; 32], 3, b"x"));
        assert_ne!(secret.digest(&[0; 32], 2, b"x"), secret.digest(&[1; 32], 2, b"x"));
    }

    /// Frozen: a changed byte here means that another system sees another request.
    #[test]
    fn golden_upstream_key() {
        let key = |text| Key::parse(text).unwrap();
        let of = |principal, operation, text| {
            Secret::new([7; 32]).upstream_key(&Scope::new(principal, operation), &key(text))
        };
        assert_eq!(&*of("tenant-1", "reserve", "order-7"), "qqdgbccnb6qyaszvvqzxqzy42k6d5b3anlepssfv");
        let message = Secret::new([7; 32]).message_key(&Scope::new("tenant-1", "reserve"), &key("order-7"), 258);
        assert_eq!(&*message, "zipdoygchz7knd2ijcxbvv4wfdwws72yrrytqlhn");
        assert_ne!(of("ab", "c", "d"), of("a", "bc", "d"));
        assert_ne!(of("a", "bc", "d"), of("a", "b", "cd"));
    }

    #[test]
    fn base32_is_that_of_rfc_4648() {
        let mut bytes = [0; 32];
        bytes[..25].copy_from_slice(b"foobarfoobarfoobarfoobarf");
        assert_eq!(&*base32(&bytes), "mzxw6ytbojtg633cmfzgm33pmjqxeztpn5rgc4tg");
    }

    #[test]
    fn debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", Secret::new([7; 32])), "Secret(..)");
    }
}
