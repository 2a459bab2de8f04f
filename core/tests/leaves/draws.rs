//! The generator of production: what of its entropy counts, and how long until it repeats.

use steady_core::backoff::{Entropy, SmallRng};

/// Two factors of the mixing function, in its order.
const FACTORS: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];

/// The inverse of an odd number modulo 2^64: each step of Newton's doubles the bits that are right, three at first.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// What gave `value` as `x ^ (x >> shift)`.
fn unshift(value: u64, shift: u32) -> u64 {
    (0..64 / shift).fold(value, |x, _| value ^ (x >> shift))
}

/// The state that a draw was made of.
fn state(draw: u64) -> u64 {
    let value = unshift(draw, 31).wrapping_mul(inverse(FACTORS[1]));
    let value = unshift(value, 27).wrapping_mul(inverse(FACTORS[0]));
    unshift(value, 30)
}

#[test]
fn a_generator_comes_to_every_state_before_it_repeats() {
    let of_64_bits = SmallRng::from_u64(5);
    let of_128_bits = (0..64_u8).map(|n| SmallRng::from_entropy([n; 16]));
    for mut rng in of_128_bits.chain([of_64_bits]) {
        let states: Vec<u64> = (0..20).map(|_| state(rng.next_u64())).collect();
        let step = states[1].wrapping_sub(states[0]);
        assert_eq!(step % 2, 1, "an even step leaves out every second state");
        assert!(states.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step), "{states:?}");
    }
}

#[test]
fn each_byte_of_the_entropy_counts() {
    let draws = |entropy| {
        let mut rng = SmallRng::from_entropy(entropy);
        [rng.next_u64(), rng.next_u64()]
    };
    let plain = draws([0; 16]);
    for place in 0..16 {
        let mut entropy = [0; 16];
        entropy[place] = 1;
        assert_ne!(draws(entropy), plain, "byte {place}");
    }
}
