//! How a good body becomes a bad one: a few changes, one after the other, from those that hit any byte to those that know the form.

use crate::chance::below;
use crate::seeds::{Form, Seed};
use crate::{json, protobuf};
use informer_core::random::Random;

/// Larger inputs say nothing that smaller ones do not.
const MAX_CHANGED_BYTES: usize = 256 << 10;

/// Lengths and numbers at which something may tip over.
const NUMBERS: [u64; 16] = [
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

/// Bytes that mean something to one form or the other.
const BYTES: [u8; 20] = [
    0, 1, 2, 8, 0x0a, 0x12, 0x1a, 0x7f, 0x80, 0xc3, 0xff, b'"', b'\\', b'{', b'}', b'[', b']', b',', b':',
    b'-',
];

/// The body of a seed with up to five changes; one in fifty inputs has none. Most know the form all the way: one blind change in a
/// place that matters hides all that follow.
pub(crate) fn damaged(seed: &Seed, other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut body = seed.body.clone();
    if random.below(50) == 0 {
        return body;
    }
    let knowing = random.below(4) > 0;
    for _ in 0..=random.below(5) {
        match seed.form {
            Form::Json if knowing => json::edit(&mut body, random),
            Form::Protobuf if knowing => {
                body = protobuf::edit(&body, random, &mut |message, random| blind(message, other, random));
            }
            _ => blind(&mut body, other, random),
        }
        body.truncate(MAX_CHANGED_BYTES);
    }
    body
}

/// A change that knows nothing of the form.
fn blind(body: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = below(random, body.len() + 1);
    let range = |random: &mut Random, length: usize| {
        let start = below(random, length + 1);
        let longest = (length - start).min(2 << random.below(12));
        start..start + below(random, longest + 1)
    };
    match random.below(16) {
        0 | 1 => each(body, at, |byte| byte ^ 1 << random.below(8)),
        2 | 3 => each(body, at, |_| BYTES[below(random, BYTES.len())]),
        4 => drop(body.drain(range(random, body.len()))),
        5 => {
            let copy = &body[range(random, body.len())];
            // Many of little: what is counted by bytes, and what is not.
            let times = if random.below(4) == 0 { below(random, 4096) / copy.len().max(1) } else { 1 };
            body.splice(at..at, copy.repeat(times));
        }
        6 => {
            let noise: Vec<u8> = (0..=random.below(16)).map(|_| random.next_u64().to_le_bytes()[0]).collect();
            body.splice(at..at, noise);
        }
        7 => body.truncate(at),
        // A number with more bytes than it needs, or that does not end.
        8 => {
            if let Some(byte) = body.get(at).copied() {
                let more = vec![0x80; below(random, 12)];
                body.splice(at..=at, [vec![byte | 0x80], more, vec![0]].concat());
            }
        }
        9 | 10 => {
            let mut lie = Vec::new();
            protobuf::varint(&mut lie, number(random, body.len()));
            let end = body.len().min(at + below(random, 3));
            body.splice(at..end, lie);
        }
        11 => {
            let lie = number(random, body.len()).to_be_bytes();
            let end = body.len().min(at + 4);
            body.splice(at..end, lie[4..].to_vec());
        }
        12 => {
            let part = other[range(random, other.len())].to_vec();
            let end = body.len().min(at + below(random, part.len() + 1));
            body.splice(at..end, part);
        }
        // The head of one and the tail of the other: a body in two forms, sometimes.
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
        _ => each(body, below(random, 4), |byte| byte.wrapping_add(random.next_u64().to_le_bytes()[0] | 1)),
    }
}

fn each(body: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = body.get_mut(at) {
        *byte = change(*byte);
    }
}

/// A number at which something may tip over, or one beside the length of the body.
fn number(random: &mut Random, length: usize) -> u64 {
    match random.below(3) {
        0 => (length as u64).wrapping_add(random.below(5)).wrapping_sub(2),
        1 => random.below(300),
        _ => NUMBERS[below(random, NUMBERS.len())],
    }
}
