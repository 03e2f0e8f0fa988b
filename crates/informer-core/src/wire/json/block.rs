//! The brackets outside of strings, found in 64 bytes of JSON at a time, to see where the nesting depth
//! becomes zero.
//!
//! Quotes, backslashes, opening and closing brackets each become a 64-bit mask with one bit per byte;
//! strings are then found by arithmetic on whole masks instead of byte by byte (the method is simdjson's).
//! This file only knows quotes, backslashes and brackets.

use wide::u8x16;

/// Number of bytes in a block.
pub(crate) const SIZE: usize = 64;

/// The bits at even positions.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The state carried from one block to the next. The default is outside of strings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Carry {
    /// All bits set if the block ended inside a string, else zero.
    string: u64,
    /// One if the last byte was a backslash that escapes the next byte, else zero.
    escape: u64,
}

impl Carry {
    pub(crate) fn is_in_string(self) -> bool {
        self.string != 0
    }

    pub(crate) fn is_escaped(self) -> bool {
        self.escape != 0
    }
}

/// The brackets of a block that are outside of strings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    open: u64,
    close: u64,
}

impl Block {
    /// Finds the brackets in `bytes`, which continue after the bytes that `carry` describes, and updates
    /// `carry`.
    #[inline]
    pub(crate) fn read(bytes: &[u8; SIZE], carry: &mut Carry) -> Self {
        let masks = Masks::of(bytes);
        let escaped = escaped(masks.backslash, &mut carry.escape);
        let strings = inside_quotes(masks.quote & !escaped) ^ carry.string;
        carry.string = if strings >> (SIZE - 1) == 1 { u64::MAX } else { 0 };
        let outside = !(strings | escaped);
        Self { open: masks.open & outside, close: masks.close & outside }
    }

    /// Adds the brackets to `depth`, up to the one at which it becomes zero. Returns the position after that
    /// bracket; `None` if `depth` does not become zero.
    #[inline]
    pub(crate) fn find_end(&self, depth: &mut u64) -> Option<usize> {
        let mut brackets = self.open | self.close;
        while brackets != 0 {
            // The lowest bit, which is the next bracket.
            let bit = brackets & brackets.wrapping_neg();
            if self.open & bit != 0 {
                *depth += 1;
            } else {
                *depth -= 1;
                if *depth == 0 {
                    return Some(bit.trailing_zeros() as usize + 1);
                }
            }
            brackets ^= bit;
        }
        None
    }
}

/// One bit per byte of a block, the first byte in the lowest bit.
struct Masks {
    quote: u64,
    backslash: u64,
    open: u64,
    close: u64,
}

impl Masks {
    #[inline]
    fn of(bytes: &[u8; SIZE]) -> Self {
        let mut masks = Self { quote: 0, backslash: 0, open: 0, close: 0 };
        for (row, lanes) in bytes.as_chunks::<16>().0.iter().enumerate() {
            let lanes = u8x16::from(*lanes);
            // Bit 0x20 distinguishes '[' from '{' and ']' from '}'. With the bit set, both look like '{' or
            // '}'.
            let folded = lanes | u8x16::splat(0x20);
            let hits = |lanes: u8x16, byte: u8| {
                let mask = lanes.cmp_eq(u8x16::splat(byte)).move_mask();
                u64::from(mask.cast_unsigned()) << (16 * row)
            };
            masks.quote |= hits(lanes, b'"');
            masks.backslash |= hits(lanes, b'\\');
            masks.open |= hits(folded, b'{');
            masks.close |= hits(folded, b'}');
        }
        masks
    }
}

/// Returns the mask of the bytes after a backslash that is not itself escaped.
#[inline]
fn escaped(backslash: u64, carry: &mut u64) -> u64 {
    if backslash == 0 {
        return std::mem::take(carry);
    }
    // In a run of backslashes, every second byte is escaped, beginning with the second; the byte after the
    // run counts as well. If the run starts at an even position, these are odd positions, and vice versa.
    // Adding the first bit of a run to the run clears it, so `sum` contains only the runs that start at
    // even positions (and one carry bit after each other run). `EVEN` is inverted where they are. A
    // backslash that the previous block escapes does not belong to a run.
    let backslash = backslash & !*carry;
    let follows = (backslash << 1) | *carry;
    let odd_starts = backslash & !EVEN & !follows;
    let (sum, overflow) = odd_starts.overflowing_add(backslash);
    *carry = u64::from(overflow);
    (EVEN ^ (sum << 1)) & follows
}

/// Returns the mask of the insides of strings, including their opening quotes: each bit is the parity of the
/// number of quotes up to it.
#[inline]
fn inside_quotes(quotes: u64) -> u64 {
    [1, 2, 4, 8, 16, 32].iter().fold(quotes, |bits, shift| bits ^ (bits << shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference model of [`Block::read`], byte by byte.
    fn reference_model(bytes: &[u8; SIZE], in_string: &mut bool, in_escape: &mut bool) -> Block {
        let mut block = Block { open: 0, close: 0 };
        for (at, byte) in bytes.iter().enumerate() {
            if std::mem::take(in_escape) {
                continue;
            }
            match byte {
                b'\\' => *in_escape = true,
                b'"' => *in_string = !*in_string,
                b'{' | b'[' if !*in_string => block.open |= 1 << at,
                b'}' | b']' if !*in_string => block.close |= 1 << at,
                _ => {}
            }
        }
        block
    }

    #[test]
    fn block_masks_agree_with_the_reference_model() {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        let alphabet = b"\"\"\\\\\\{}[]a,: \x02\x22\xa2\xdc\x5c\xfb\xfd|";
        let (mut carry, mut in_string, mut in_escape) = (Carry::default(), false, false);
        for round in 0..20_000 {
            let letters = 1 + round % alphabet.len();
            let bytes: [u8; SIZE] = std::array::from_fn(|_| alphabet[random() % letters]);
            let expected = reference_model(&bytes, &mut in_string, &mut in_escape);
            assert_eq!(Block::read(&bytes, &mut carry), expected, "round {round}: {bytes:?}");
            assert_eq!((carry.is_in_string(), carry.is_escaped()), (in_string, in_escape), "round {round}");
        }
    }

    #[test]
    fn end_is_where_the_depth_becomes_zero() {
        let mut text = [b' '; SIZE];
        text[..14].copy_from_slice(br#"[}"}]"]{}}{[]]"#);
        let block = Block::read(&text, &mut Carry::default());
        assert_eq!(block.find_end(&mut 1), Some(7));
        let mut depth = 5;
        assert_eq!((block.find_end(&mut depth), depth), (None, 3));
    }
}
