//! Which objects of a kind belong to ranges of hashes.
//!
//! An object has one hash: that of its uid, of its namespace, or of the uid of its controlling owner. Only the last one
//! can change. An object without this property belongs to no range. This file must not know who has which range.

use super::range::{HashRange, HashRanges, shard_hash};
use crate::key::Key;
use crate::wire::Head;
use std::fmt::Write as _;

/// The property of objects by whose hash they are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ShardProperty {
    /// `metadata.uid`.
    Uid,
    /// `metadata.namespace`. Objects of cluster-scoped kinds belong to no range.
    Namespace,
    /// The uid of the owner that is the managing controller. No server filters by it. Objects without such an owner
    /// belong to no range.
    ControllerUid,
}

/// A selection of objects: those whose hash is in one of the ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardFilter {
    property: ShardProperty,
    ranges: HashRanges,
}

impl ShardProperty {
    /// Returns the hash of an object; `None` if it belongs to no range.
    pub fn hash(self, head: &Head) -> Option<u64> {
        let text = match self {
            Self::Uid => Some(&*head.uid),
            Self::Namespace => head.key.namespace(),
            Self::ControllerUid => return Some(shard_hash(head.owners.controller()?.uid)),
        };
        text.filter(|text| !text.is_empty()).map(shard_hash)
    }

    /// Returns whether the hash of an object can change: an object may get another controlling owner, or lose it.
    pub fn can_change(self) -> bool {
        self == Self::ControllerUid
    }

    /// Returns the hash of an object of which only the key is known; `None` if the key does not determine it.
    pub fn hash_of_key(self, key: &Key) -> Option<u64> {
        (self == Self::Namespace).then(|| key.namespace().map(shard_hash))?
    }

    /// Returns the path of the property in shard selectors; `None` if servers cannot filter by it.
    fn path(self) -> Option<&'static str> {
        match self {
            Self::Uid => Some("object.metadata.uid"),
            Self::Namespace => Some("object.metadata.namespace"),
            Self::ControllerUid => None,
        }
    }
}

/// Largest number of ranges in a selector. Encoded, each takes about 105 bytes of the URL, and many proxies accept 8 KB.
const MAX_SELECTOR_RANGES: usize = 64;

impl ShardFilter {
    /// Creates the selection of the objects whose hash is in one of the ranges.
    pub fn new(property: ShardProperty, ranges: HashRanges) -> Self {
        Self { property, ranges }
    }

    /// Returns the property that decides.
    pub fn property(&self) -> ShardProperty {
        self.property
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> &HashRanges {
        &self.ranges
    }

    /// Returns the selection of the same property with other ranges.
    #[must_use]
    pub fn with_ranges(&self, ranges: HashRanges) -> Self {
        Self { property: self.property, ranges }
    }

    /// Returns whether an object is selected.
    pub fn contains(&self, head: &Head) -> bool {
        self.property.hash(head).is_some_and(|hash| self.ranges.contains(hash))
    }

    /// Returns whether an object of which only the key is known is selected; `None` if the key does not tell.
    pub fn contains_key(&self, key: &Key) -> Option<bool> {
        match self.property {
            ShardProperty::Namespace => {
                Some(self.property.hash_of_key(key).is_some_and(|hash| self.ranges.contains(hash)))
            }
            ShardProperty::Uid | ShardProperty::ControllerUid => None,
        }
    }

    /// Returns the selection as the query parameter `shardSelector` (KEP-5866); `None` if servers cannot filter so, or
    /// if all hashes are selected.
    ///
    /// If there are very many ranges, the parameter also selects hashes between some of them.
    pub fn selector(&self) -> Option<String> {
        let path = self.property.path()?;
        if self.ranges.covers(&HashRange::ALL) {
            return None;
        }
        let mut text = String::new();
        for range in self.widened(MAX_SELECTOR_RANGES) {
            if !text.is_empty() {
                text.push_str(" || ");
            }
            let end = u128::from(range.last()) + 1;
            // Writing to a string does not fail.
            let _ = write!(text, "shardRange({path}, '0x{:016x}', '0x{end:016x}')", range.first());
        }
        Some(text)
    }

    /// Returns at most `count` ranges that contain the selected ones: small gaps are closed.
    fn widened(&self, count: usize) -> Vec<HashRange> {
        let mut ranges: Vec<HashRange> = self.ranges.iter().copied().collect();
        let mut excess = ranges.len().saturating_sub(count);
        let mut gaps: Vec<u64> = ranges.windows(2).map(|pair| pair[1].first() - pair[0].last()).collect();
        gaps.sort_unstable();
        let Some(limit) = excess.checked_sub(1).and_then(|last| gaps.get(last)) else { return ranges };
        ranges.dedup_by(|next, range| {
            let is_closed = excess > 0 && next.first() - range.last() <= *limit;
            if is_closed {
                *range = HashRange::new(range.first(), next.last()).unwrap_or(*range);
                excess -= 1;
            }
            is_closed
        });
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Limits, ManagedFields, TypeMeta, read_object};

    #[test]
    fn object_without_the_property_belongs_to_no_range() {
        let hash = |property: ShardProperty, metadata: &str| {
            let object = format!(r#"{{"metadata":{{"name":"web","resourceVersion":"7"{metadata}}}}}"#);
            let type_meta = TypeMeta::new("v1", "Widget");
            let read = read_object(&type_meta, Limits::default(), ManagedFields::Drop, object.as_bytes());
            property.hash(&read.unwrap().head)
        };
        let owner = |is_controller: bool| {
            let owner = r#""apiVersion":"v1","kind":"Rack","name":"r","uid":"u""#;
            format!(r#","ownerReferences":[{{{owner},"controller":{is_controller}}}]"#)
        };
        let (uid, empty, namespace) = (r#","uid":"u""#, r#","uid":"""#, r#","namespace":"u""#);
        for (property, with, without) in [
            (ShardProperty::Uid, uid, vec!["", empty, namespace]),
            (ShardProperty::Namespace, namespace, vec!["", uid]),
            (ShardProperty::ControllerUid, &*owner(true), vec!["", uid, &*owner(false)]),
        ] {
            assert_eq!(hash(property, with), Some(shard_hash("u")), "{property:?}");
            for metadata in without {
                assert_eq!(hash(property, metadata), None, "{property:?} {metadata}");
            }
        }
    }

    #[test]
    fn selector_has_one_range_each_and_may_end_at_two_to_the_64th() {
        let ranges = [HashRange::new(0, 0xff), HashRange::new(1 << 63, u64::MAX)];
        let filter = ShardFilter::new(ShardProperty::Uid, ranges.into_iter().flatten().collect());
        assert_eq!(
            filter.selector().as_deref(),
            Some(
                "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000100') || \
                 shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
            )
        );
        let all: HashRanges = [HashRange::ALL].into_iter().collect();
        assert_eq!(filter.with_ranges(all.clone()).selector(), None, "no selector selects everything");
        assert_eq!(ShardFilter::new(ShardProperty::ControllerUid, all).selector(), None);
    }

    /// The selector of a process with many separate ranges was so long that proxies reject the request: 105 bytes for
    /// each range when encoded, and many proxies accept 8 KB.
    #[test]
    fn selector_of_many_ranges_has_limited_length_and_selects_them_all() {
        let every_other = |count: u64| -> HashRanges {
            let range = |number: u64| HashRange::new((2 * number) << 48, ((2 * number + 1) << 48) - 1);
            (0..count).filter_map(range).collect()
        };
        for count in [1, 63, 64, 65, 100, 512] {
            let filter = ShardFilter::new(ShardProperty::Uid, every_other(count));
            let selected: HashRanges = filter.widened(MAX_SELECTOR_RANGES).into_iter().collect();
            assert!(filter.ranges().is_subset(&selected), "{count}");
            let text = filter.selector().unwrap();
            assert_eq!(text.matches("shardRange").count() as u64, count.min(64));
            assert!(count > 64 || selected == *filter.ranges(), "{count}");
        }
        let uneven = [(0, 1), (3, 4), (100, 200), (202, 300)];
        let uneven = uneven.into_iter().filter_map(|(first, last)| HashRange::new(first, last)).collect();
        let widened = ShardFilter::new(ShardProperty::Uid, uneven).widened(2);
        assert_eq!(
            widened.iter().map(|range| (range.first(), range.last())).collect::<Vec<_>>(),
            [(0, 4), (100, 300)]
        );
    }

    #[test]
    fn key_determines_the_hash_only_by_namespace() {
        let (shop, node) = (Key::new("shop", "web"), Key::cluster("node-1"));
        assert_eq!(ShardProperty::Namespace.hash_of_key(&shop), Some(shard_hash("shop")));
        assert_eq!(ShardProperty::Namespace.hash_of_key(&node), None);
        assert_eq!(ShardProperty::Uid.hash_of_key(&shop), None);
        let all: HashRanges = [HashRange::ALL].into_iter().collect();
        let filter = ShardFilter::new(ShardProperty::Namespace, all);
        assert_eq!((filter.contains_key(&shop), filter.contains_key(&node)), (Some(true), Some(false)));
    }
}
