//! Corruption of valid bodies: a few consecutive changes, of arbitrary bytes or according to the encoding.

use crate::chance::below;
use crate::seeds::{Encoding, Seed};
use crate::{json, protobuf};
use informer_core::random::Random;

/// Maximum size of an input; larger ones reveal nothing that smaller ones do not.
const MAX_CHANGED_BYTES: usize = 256 << 10;

/// Lengths and numbers at boundaries of integer types and encodings.
const BOUNDARY_NUMBERS: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x3fff,
    0xffff,
    1 << 20,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Bytes that are significant in one of the encodings.
const SIGNIFICANT_BYTES: [u8; 20] = [
    0, 1, 2, 8, 0x0a, 0x12, 0x1a, 0x7f, 0x80, 0xc3, 0xff, b'"', b'\\', b'{', b'}', b'[', b']', b',', b':',
    b'-',
];

/// Returns the body of a seed with one to five changes; one in fifty inputs is unchanged.
///
/// In most inputs every change preserves the encoding: a single arbitrary change in an important position
/// hides all others.
pub(crate) fn corrupt(seed: &Seed, other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut body = seed.body.clone();
    if random.below(50) == 0 {
        return body;
    }
    let preserves_encoding = random.below(4) > 0;
    for _ in 0..=random.below(5) {
        match seed.encoding {
            Encoding::Json if preserves_encoding => json::edit(&mut body, random),
            Encoding::Protobuf if preserves_encoding => {
                body = protobuf::edit(&body, random, &mut |message, random| {
                    change_bytes(message, other, random);
                });
            }
            _ => change_bytes(&mut body, other, random),
        }
        body.truncate(MAX_CHANGED_BYTES);
    }
    body
}

/// Changes bytes without regard to the encoding.
fn change_bytes(body: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = below(random, body.len() + 1);
    let range = |random: &mut Random, length: usize| {
        let start = below(random, length + 1);
        let max_length = (length - start).min(2 << random.below(12));
        start..start + below(random, max_length + 1)
    };
    match random.below(16) {
        0 | 1 => change_byte(body, at, |byte| byte ^ 1 << random.below(8)),
        2 | 3 => change_byte(body, at, |_| SIGNIFICANT_BYTES[below(random, SIGNIFICANT_BYTES.len())]),
        4 => drop(body.drain(range(random, body.len()))),
        5 => {
            let copy = &body[range(random, body.len())];
            // Many repetitions of a short part: to test limits by bytes and by count.
            let times = if random.below(4) == 0 { below(random, 4096) / copy.len().max(1) } else { 1 };
            body.splice(at..at, copy.repeat(times));
        }
        6 => {
            let noise: Vec<u8> = (0..=random.below(16)).map(|_| random.next_u64().to_le_bytes()[0]).collect();
            body.splice(at..at, noise);
        }
        7 => body.truncate(at),
        // A varint that is longer than needed, or that does not end.
        8 => {
            if let Some(byte) = body.get(at).copied() {
                let more = vec![0x80; below(random, 12)];
                body.splice(at..=at, [vec![byte | 0x80], more, vec![0]].concat());
            }
        }
        9 | 10 => {
            let mut varint = Vec::new();
            protobuf::varint(&mut varint, number(random, body.len()));
            let end = body.len().min(at + below(random, 3));
            body.splice(at..end, varint);
        }
        11 => {
            let number = number(random, body.len()).to_be_bytes();
            let end = body.len().min(at + 4);
            body.splice(at..end, number[4..].to_vec());
        }
        12 => {
            let part = other[range(random, other.len())].to_vec();
            let end = body.len().min(at + below(random, part.len() + 1));
            body.splice(at..end, part);
        }
        // The beginning of one body and the end of the other, possibly in two encodings.
        13 => {
            let from = below(random, other.len() + 1);
            body.truncate(at);
            body.extend_from_slice(&other[from..]);
        }
        14 => {
            let depth = below(random, 5000);
            let deep = protobuf::nested(&body[range(random, body.len())], &[1 + random.below(48)], depth);
            body.splice(at..at, deep);
        }
        _ => change_byte(body, below(random, 4), |byte| {
            byte.wrapping_add(random.next_u64().to_le_bytes()[0] | 1)
        }),
    }
}

fn change_byte(body: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = body.get_mut(at) {
        *byte = change(*byte);
    }
}

/// Returns a boundary number, a small one, or one close to the length of the body.
fn number(random: &mut Random, length: usize) -> u64 {
    match random.below(3) {
        0 => (length as u64).wrapping_add(random.below(5)).wrapping_sub(2),
        1 => random.below(300),
        _ => BOUNDARY_NUMBERS[below(random, BOUNDARY_NUMBERS.len())],
    }
}
