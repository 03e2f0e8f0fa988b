//! Hashes, ranges and selectors of the model, written independently of the tested code.
//!
//! All ranges of the simulation consist of whole buckets: sixteenths of all hashes.

use informer_core::shard::{HashRange, HashRanges, ShardProperty};

/// A set of buckets, one bit each.
pub(crate) type Buckets = u16;

/// All hashes.
pub(crate) const ALL: Buckets = u16::MAX;

const BUCKET_BITS: u32 = 60;

/// The hash of KEP-5866: FNV-1a.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hash = 14_695_981_039_346_656_037_u64;
    for byte in text.bytes() {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(1_099_511_628_211);
    }
    hash
}

/// The bucket of a text, as a set.
pub(crate) fn bucket(text: &str) -> Buckets {
    1 << (hash(text) >> BUCKET_BITS)
}

/// The ranges of a set of buckets.
pub(crate) fn ranges(buckets: Buckets) -> HashRanges {
    let each = (0..16).filter(|bucket| buckets & (1 << bucket) != 0);
    let range = |bucket: u64| {
        let first = bucket << BUCKET_BITS;
        HashRange::new(first, first | ((1 << BUCKET_BITS) - 1))
    };
    each.filter_map(range).collect()
}

/// The buckets of ranges, which must contain or exclude each bucket as a whole.
pub(crate) fn buckets(ranges: &HashRanges) -> Buckets {
    ranges
        .iter()
        .map(|range| buckets_between(u128::from(range.first()), u128::from(range.last()) + 1))
        .fold(0, |all, buckets| all | buckets)
}

fn buckets_between(start: u128, end: u128) -> Buckets {
    let (first, after) = (start >> BUCKET_BITS, end >> BUCKET_BITS);
    assert_eq!((first << BUCKET_BITS, after << BUCKET_BITS), (start, end), "a part of a bucket");
    assert!(first < after && after <= 16, "{start:x} to {end:x}");
    (first..after).fold(0, |all, bucket| all | (1 << bucket))
}

/// A parsed `shardSelector`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selector {
    pub(crate) property: ShardProperty,
    pub(crate) buckets: Buckets,
}

impl Selector {
    /// Parses the text as kube-apiserver does. Panics if it would be rejected.
    pub(crate) fn parse(text: &str) -> Self {
        let mut parsed: Option<Self> = None;
        for part in text.split(" || ") {
            let arguments = part.strip_prefix("shardRange(").and_then(|rest| rest.strip_suffix(')'));
            let arguments: Vec<&str> = arguments.unwrap().split(", ").collect();
            let [path, start, end] = arguments[..] else { panic!("{part}: not three arguments") };
            let property = match path {
                "object.metadata.uid" => ShardProperty::Uid,
                "object.metadata.namespace" => ShardProperty::Namespace,
                other => panic!("{other}: unsupported path"),
            };
            let number = |text: &str| {
                let digits = text.strip_prefix("'0x").and_then(|rest| rest.strip_suffix('\'')).unwrap();
                assert!(digits.len() == 16 || digits == "10000000000000000", "{text}");
                u128::from_str_radix(digits, 16).unwrap()
            };
            let buckets = buckets_between(number(start), number(end));
            let before = parsed.map_or(0, |before| before.buckets);
            assert!(parsed.is_none_or(|before| before.property == property), "{text}: two paths");
            parsed = Some(Self { property, buckets: before | buckets });
        }
        parsed.unwrap()
    }
}
