//! Requests over several round trips, through the public interface (rules I1 to I5).

#[path = "../support/invariants/mod.rs"]
mod invariants;
mod rounds;
mod seal;

use std::hash::Hasher;

use steady_core::mrtr::Mac;

/// A keyed digest for tests: four lanes of the standard library's hasher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestMac(pub(crate) u64);

impl Mac for TestMac {
    fn mac(&self, message: &[u8]) -> [u8; 32] {
        let mut out = [0; 32];
        for (lane, place) in out.chunks_mut(8).enumerate() {
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write_u64(self.0);
            hasher.write_usize(lane);
            hasher.write(message);
            place.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        out
    }
}
