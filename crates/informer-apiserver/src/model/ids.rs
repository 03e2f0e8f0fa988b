//! Generated uids and names. They look random and are the same in every run with the same seed.

use crate::random::Random;

/// The alphabet of generated names: no vowels and no characters that are easily confused.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A seeded source of uids and names.
#[derive(Debug, Clone)]
pub(crate) struct Ids(Random);

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Ids(Random::new(seed))
    }

    /// Returns a new uid in the format of a version 4 UUID.
    pub(crate) fn next_uid(&mut self) -> String {
        // Sets the bits that encode version (4) and variant (binary 10).
        let high = (self.0.next() & !0xf000) | 0x4000;
        let low = (self.0.next() & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns a new name from `generateName`: at most 63 bytes, the last five of them generated.
    pub(crate) fn next_name(&mut self, base: &str) -> String {
        let end = (0..=base.len().min(58)).rev().find(|end| base.is_char_boundary(*end)).unwrap_or(0);
        let mut name = base[..end].to_owned();
        let mut bits = self.0.next();
        for _ in 0..5 {
            let letters = NAME_LETTERS.len() as u64;
            let index = usize::try_from(bits % letters).unwrap_or(0);
            name.push(char::from(NAME_LETTERS[index]));
            bits /= letters;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_well_formed_and_reproducible() {
        let (mut one, mut two) = (Ids::new(7), Ids::new(7));
        let uid = one.next_uid();
        assert_eq!(uid, two.next_uid());
        assert_ne!(uid, one.next_uid());
        let parts: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]));
        assert_eq!(one.next_name("gen-").len(), 9);
        assert_eq!(one.next_name(&"g".repeat(70)).len(), 63);
    }
}
