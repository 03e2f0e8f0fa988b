//! Sets of paths: who owns what.
//!
//! A set is a tree. A spot is owned itself, or something below it is, or both: there are no spots for nothing. Owning a spot says
//! nothing about what is below it. As JSON it is the `fieldsV1` of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::{Element, ElementError, Path};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set(BTreeMap<Element, Spot>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) owned: bool,
    pub(super) below: Set,
}

impl Set {
    pub(super) fn insert(&mut self, path: &[Element]) {
        match path {
            // Nobody owns a whole object.
            [] => {}
            [last] => self.0.entry(last.clone()).or_default().owned = true,
            [first, rest @ ..] => self.0.entry(first.clone()).or_default().below.insert(rest),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, element: &Element) -> Option<&Spot> {
        self.0.get(element)
    }

    pub(super) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|spot| spot.owned),
            [first, rest @ ..] => self.get(first).is_some_and(|spot| spot.below.has(rest)),
        }
    }

    pub(super) fn union(&self, other: &Set) -> Set {
        let mut all = self.clone();
        all.extend(other);
        all
    }

    pub(super) fn extend(&mut self, other: &Set) {
        for (element, spot) in &other.0 {
            let here = self.0.entry(element.clone()).or_default();
            here.owned |= spot.owned;
            here.below.extend(&spot.below);
        }
    }

    pub(super) fn intersection(&self, other: &Set) -> Set {
        self.keep(|element, spot| {
            let there = other.get(element)?;
            Some(Spot { owned: spot.owned && there.owned, below: spot.below.intersection(&there.below) })
        })
    }

    /// Without the paths of `other`; what is below them stays.
    pub(super) fn difference(&self, other: &Set) -> Set {
        self.keep(|element, spot| match other.get(element) {
            None => Some(spot.clone()),
            Some(there) => {
                Some(Spot { owned: spot.owned && !there.owned, below: spot.below.difference(&there.below) })
            }
        })
    }

    /// Without the paths of `other` and everything below them.
    pub(super) fn without(&self, other: &Set) -> Set {
        self.keep(|element, spot| match other.get(element) {
            None => Some(spot.clone()),
            Some(there) if there.owned => None,
            Some(there) => Some(Spot { owned: spot.owned, below: spot.below.without(&there.below) }),
        })
    }

    /// A set with these spots as `change` leaves them.
    pub(super) fn keep(&self, change: impl Fn(&Element, &Spot) -> Option<Spot>) -> Set {
        let spots = self.0.iter().filter_map(|(element, spot)| {
            let spot = change(element, spot)?;
            (spot.owned || !spot.below.is_empty()).then(|| (element.clone(), spot))
        });
        Set(spots.collect())
    }

    /// All paths; at each level first what is owned there, then what is below, as conflicts are listed.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, at: &mut Path, paths: &mut Vec<Path>) {
        for (element, _) in self.0.iter().filter(|(_, spot)| spot.owned) {
            paths.push(at.iter().chain([element]).cloned().collect());
        }
        for (element, spot) in &self.0 {
            at.push(element.clone());
            spot.below.collect(at, paths);
            at.pop();
        }
    }

    /// `fieldsV1`.
    pub(super) fn to_value(&self) -> Value {
        self.0.iter().map(|(element, spot)| (element.name(), spot.to_value())).collect::<Map<_, _>>().into()
    }

    /// `fieldsV1` as text, in the order in which the real server writes it for built-in kinds.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, false);
        text
    }

    fn write(&self, text: &mut String, owned: bool) {
        let here = (owned && !self.is_empty()).then(|| (".".to_owned(), None));
        let below = self.0.iter().map(|(element, spot)| (element.name(), Some(spot)));
        text.push('{');
        for (at, (name, spot)) in here.into_iter().chain(below).enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&Value::String(name).to_string());
            text.push(':');
            match spot {
                Some(spot) => spot.below.write(text, spot.owned),
                None => text.push_str("{}"),
            }
        }
        text.push('}');
    }

    /// Reads `fieldsV1`. What later servers may have put there is dropped.
    pub(super) fn parse(value: &Value) -> Result<Set, String> {
        read(value).map(|(set, _)| set)
    }
}

impl Spot {
    fn to_value(&self) -> Value {
        let mut value = self.below.to_value();
        if let Some(fields) = value.as_object_mut().filter(|fields| self.owned && !fields.is_empty()) {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        value
    }
}

/// What is below a spot, and whether the spot is owned: with a dot, or with nothing below it.
fn read(value: &Value) -> Result<(Set, bool), String> {
    let mut set = Set::default();
    let mut owned = false;
    let empty = Map::new();
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => &empty,
        _ => return Err("expect { or n".to_owned()),
    };
    for (name, value) in fields {
        if name == "." {
            owned = true;
            continue;
        }
        let element = match Element::parse(name) {
            Ok(element) => element,
            Err(ElementError::Unknown) => continue,
            Err(ElementError::Bad(why)) => return Err(format!("parsing key as path element: {why}")),
        };
        let (below, owned) = read(value)?;
        set.0.insert(element, Spot { owned, below });
    }
    let owned = owned || set.is_empty();
    Ok((set, owned))
}
