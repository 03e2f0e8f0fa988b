//! What this process may do as a member of a shard group, as its informers and controllers see it.
//!
//! The group publishes a [`ShardView`]; informers and controllers are its [`Participant`]s and confirm that they have
//! applied it. A range is released only when every participant has stopped its work for it. Caches keep a range until the
//! work of the controllers has ended, which reads them. This file must not know how the group decides, nor what the work
//! is.
//!
//! Invariant: those who wait for a view are woken in the order in which they began to wait, so that a simulation of the
//! program is reproducible. The channel `watch` of tokio wakes its receivers in a random order.

use informer_core::shard::{HashRange, HashRanges, RangeToken, ShardProperty};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What this process may do at this moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ShardView {
    /// Increases with each change.
    pub(crate) number: u64,
    /// The ranges for which the process acts and may begin work.
    pub(crate) held: Arc<HashRanges>,
    /// The ranges that are being released: running work may end in order, and none begins. Work for all other ranges
    /// must be dropped immediately.
    pub(crate) releasing: Arc<HashRanges>,
    /// Whether the group has considered this process, and every range that is assigned to it is held.
    pub(crate) is_settled: bool,
    /// The tokens of the ranges for which the process acts. A range whose token changes was lost and gained again.
    pub(crate) tokens: Arc<BTreeMap<HashRange, RangeToken>>,
    /// The ranges for which the process acts, held or being released, by the number of the view since which they were
    /// held.
    acting_since: Vec<(u64, HashRanges)>,
}

impl ShardView {
    /// Returns the number of the view since which a hash is held; `None` if it is not.
    pub(crate) fn held_since(&self, hash: u64) -> Option<u64> {
        self.acting_since(hash).filter(|_| self.held.contains(hash))
    }

    /// Returns the number of the view since which a hash was held; `None` if it is neither held nor being released.
    pub(crate) fn acting_since(&self, hash: u64) -> Option<u64> {
        self.acting_since.iter().find(|(_, ranges)| ranges.contains(hash)).map(|(number, _)| *number)
    }

    /// Returns the ranges for which the process has acted since the view with this number, or an earlier one.
    pub(crate) fn kept_since(&self, number: u64) -> HashRanges {
        let entries = self.acting_since.iter().filter(|(since, _)| *since <= number);
        entries.fold(HashRanges::default(), |kept, (_, ranges)| kept.union(ranges))
    }

    /// Returns the token of the range that contains a hash, if the process acts for it.
    pub(crate) fn token(&self, hash: u64) -> Option<&RangeToken> {
        let mut tokens =
            self.tokens.iter().filter(|_| self.held.contains(hash) || self.releasing.contains(hash));
        tokens.find(|(range, _)| range.contains(hash)).map(|(_, token)| token)
    }

    /// Returns the range whose claim contains a hash, or the hash alone if the process does not act for it.
    pub(crate) fn range_of(&self, hash: u64) -> Option<HashRange> {
        let claimed = self.tokens.keys().find(|range| range.contains(hash)).copied();
        claimed.or_else(|| HashRange::new(hash, hash))
    }

    /// Completes a changed view.
    fn finish(&mut self, before: &Self) {
        self.number = before.number + 1;
        let is_renewed = |range: &HashRange, token: &RangeToken| {
            before.tokens.get(range).is_some_and(|known| known != token)
        };
        let renewed = self.tokens.iter().filter(|(range, token)| is_renewed(range, token));
        let renewed: HashRanges = renewed.map(|(range, _)| *range).collect();
        let gained = self.held.difference(&before.held.difference(&renewed));
        let acting = self.held.union(&self.releasing);
        let kept = acting.difference(&gained).difference(&renewed);
        for (_, ranges) in &mut self.acting_since {
            *ranges = ranges.intersection(&kept);
        }
        self.acting_since.retain(|(_, ranges)| !ranges.is_empty());
        if !gained.is_empty() {
            self.acting_since.push((self.number, gained));
        }
    }
}

/// A handle of a shard group for informers and controllers; clones are equal.
#[derive(Clone)]
pub(crate) struct ShardHandle(Arc<Shared>);

struct Shared {
    /// Namespace and name of the group.
    name: Box<str>,
    property: ShardProperty,
    view: Mutex<ShardView>,
    /// Notifies those who wait for a new view, or for the end of work.
    changed: Notify,
    /// When the process stops acting if the group renews nothing; `None` if it does not act.
    acts_until: Mutex<Option<Instant>>,
    /// What the participants have confirmed.
    participants: Mutex<Vec<(Role, Weak<Mutex<Confirmation>>)>>,
    /// Changed whenever a participant confirms something, or ends.
    confirmations: watch::Sender<()>,
}

/// What a participant has confirmed.
#[derive(Debug)]
struct Confirmation {
    /// The number of the last view that is applied.
    number: u64,
    /// The ranges that are not held any more, but for which work goes on, or whose objects are cached.
    remaining: HashRanges,
}

/// What a participant does with a range that is being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It ends its work.
    Work,
    /// It keeps the objects until all work has ended.
    Cache,
}

/// One informer or controller that acts for the ranges of a group.
pub(crate) struct Participant {
    views: ViewReceiver,
    confirmed: Option<Arc<Mutex<Confirmation>>>,
}

/// Receives the views of a group.
pub(crate) struct ViewReceiver {
    handle: ShardHandle,
    /// The number of the last view that was seen.
    seen: Option<u64>,
}

impl ShardHandle {
    pub(crate) fn new(name: &str, property: ShardProperty) -> Self {
        Self(Arc::new(Shared {
            name: name.into(),
            property,
            view: Mutex::default(),
            changed: Notify::new(),
            acts_until: Mutex::default(),
            participants: Mutex::default(),
            confirmations: watch::Sender::default(),
        }))
    }

    /// Returns a number that differs from those of all other groups that exist.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns namespace and name of the group.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the property by whose hash the group divides objects.
    pub(crate) fn property(&self) -> ShardProperty {
        self.0.property
    }

    /// Returns the newest view.
    pub(crate) fn view(&self) -> ShardView {
        self.lock_view().clone()
    }

    /// Returns a receiver of views. It has seen none.
    pub(crate) fn subscribe(&self) -> ViewReceiver {
        ViewReceiver { handle: self.clone(), seen: None }
    }

    /// Changes the view; returns its number.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut ShardView)) -> u64 {
        let mut view = self.lock_view();
        let before = view.clone();
        change(&mut view);
        let is_changed = *view != before;
        if is_changed {
            view.finish(&before);
        }
        let number = view.number;
        drop(view);
        if is_changed {
            self.0.changed.notify_waiters();
        }
        number
    }

    /// Sets the point in time at which the process stops acting if nothing is renewed.
    pub(crate) fn set_acts_until(&self, until: Option<Instant>) {
        *self.lock_acts_until() = until;
    }

    /// Returns whether the process acts at this moment. Exact also if the process was paused.
    pub(crate) fn acts(&self) -> bool {
        self.lock_acts_until().is_some_and(|until| Instant::now() < until)
    }

    /// Returns whether work for a hash, which is held since the view with this number, may go on at this moment. Exact also
    /// if the process was paused.
    pub(crate) fn may_continue(&self, hash: u64, since: u64) -> bool {
        self.acts() && self.lock_view().acting_since(hash) == Some(since)
    }

    /// Returns whether the process may begin work for a hash at this moment.
    pub(crate) fn owns_hash(&self, hash: u64) -> bool {
        self.acts() && self.lock_view().held.contains(hash)
    }

    /// Adds a participant with work, which must confirm every later view. It has begun none.
    pub(crate) fn join(&self) -> Participant {
        self.add(Role::Work)
    }

    /// Adds a participant that caches objects. It keeps those of ranges that are being released while they are in
    /// [`remaining_work`](Self::remaining_work).
    pub(crate) fn join_cache(&self) -> Participant {
        self.add(Role::Cache)
    }

    fn add(&self, role: Role) -> Participant {
        let mut participants = self.participants();
        let (number, remaining) = (self.lock_view().number, HashRanges::default());
        let confirmed = Arc::new(Mutex::new(Confirmation { number, remaining }));
        participants.retain(|(_, known)| known.strong_count() > 0);
        participants.push((role, Arc::downgrade(&confirmed)));
        drop(participants);
        Participant { views: self.subscribe(), confirmed: Some(confirmed) }
    }

    /// Returns whether no participant acts for a range that is not held since the view with this number.
    pub(crate) fn has_ended(&self, range: &HashRange, number: u64) -> bool {
        self.confirmations(|_| true).all(|confirmed| {
            let confirmed = lock(&confirmed);
            confirmed.number >= number && !confirmed.remaining.overlaps(range)
        })
    }

    /// Returns the ranges for which work may go on although they are not held any more in the view with this number.
    pub(crate) fn remaining_work(&self, number: u64) -> HashRanges {
        self.confirmations(|role| role == Role::Work).fold(HashRanges::default(), |remaining, confirmed| {
            let confirmed = lock(&confirmed);
            if confirmed.number < number {
                return HashRanges::all();
            }
            remaining.union(&confirmed.remaining)
        })
    }

    /// Returns the confirmations of the participants with a role.
    fn confirmations(
        &self,
        is_selected: impl Fn(Role) -> bool,
    ) -> impl Iterator<Item = Arc<Mutex<Confirmation>>> {
        let participants = self.participants();
        let selected = participants.iter().filter(|(role, _)| is_selected(*role));
        let confirmations: Vec<_> = selected.filter_map(|(_, confirmed)| confirmed.upgrade()).collect();
        confirmations.into_iter()
    }

    /// Returns the highest number that every participant has confirmed for all ranges; the newest one if there are no
    /// participants.
    #[cfg(test)]
    pub(crate) fn confirmed(&self) -> u64 {
        let numbers = self.confirmations(|_| true).map(|confirmed| {
            let confirmed = lock(&confirmed);
            if confirmed.remaining.is_empty() { confirmed.number } else { confirmed.number.saturating_sub(1) }
        });
        numbers.min().unwrap_or_else(|| self.lock_view().number)
    }

    /// Returns a channel that changes when [`has_ended`](Self::has_ended) may have.
    pub(crate) fn subscribe_confirmations(&self) -> watch::Receiver<()> {
        self.0.confirmations.subscribe()
    }

    fn notify_confirmation(&self) {
        self.0.confirmations.send_replace(());
        self.0.changed.notify_waiters();
    }

    /// Waits for a condition that becomes true only by a new view or a confirmation.
    async fn wait_until(&self, is_met: impl Fn() -> bool) {
        loop {
            // Receives every notification from here on.
            let notified = self.0.changed.notified();
            if is_met() {
                return;
            }
            notified.await;
        }
    }

    fn lock_view(&self) -> MutexGuard<'_, ShardView> {
        self.0.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_acts_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.acts_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn participants(&self) -> MutexGuard<'_, Vec<(Role, Weak<Mutex<Confirmation>>)>> {
        self.0.participants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewReceiver {
    /// Returns the newest view, and marks it as seen.
    pub(crate) fn view(&mut self) -> ShardView {
        let view = self.handle.view();
        self.seen = Some(view.number);
        view
    }

    /// Marks the newest view as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = Some(self.handle.lock_view().number);
    }

    /// Returns whether there is a view that was not seen.
    pub(crate) fn has_changed(&self) -> bool {
        self.seen != Some(self.handle.lock_view().number)
    }

    /// Waits until there is a view that was not seen, without marking it as seen.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub(crate) async fn changed(&self) {
        self.handle.wait_until(|| self.has_changed()).await;
    }
}

impl Participant {
    /// Returns the newest view, and marks it as seen.
    pub(crate) fn view(&mut self) -> ShardView {
        self.views.view()
    }

    /// Returns whether there is a view that was not seen.
    pub(crate) fn has_changed(&self) -> bool {
        self.views.has_changed()
    }

    /// Waits until there is a view that was not seen, without marking it as seen.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub(crate) async fn changed(&self) {
        self.views.changed().await;
    }

    /// Confirms that all views up to `number` are applied, except for the `remaining` ranges: work for no other range than
    /// these and the held ones is running.
    pub(crate) fn confirm(&self, number: u64, remaining: HashRanges) {
        let Some(confirmed) = &self.confirmed else { return };
        let mut confirmed = lock(confirmed);
        let is_news =
            number > confirmed.number || (number == confirmed.number && remaining != confirmed.remaining);
        if is_news {
            *confirmed = Confirmation { number, remaining };
            drop(confirmed);
            self.views.handle.notify_confirmation();
        }
    }

    /// Returns the ranges for which other participants may still work although they are not held any more in the view
    /// with this number.
    pub(crate) fn remaining_work(&self, number: u64) -> HashRanges {
        self.views.handle.remaining_work(number)
    }

    /// Waits until work for some of the ranges, which are not held any more in the view with this number, has ended.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub(crate) async fn work_ended(&self, ranges: &HashRanges, number: u64) {
        self.views.handle.wait_until(|| !ranges.is_subset(&self.remaining_work(number))).await;
    }
}

/// A participant that has ended has no work.
impl Drop for Participant {
    fn drop(&mut self) {
        self.confirmed = None;
        self.views.handle.notify_confirmation();
    }
}

fn lock(confirmed: &Mutex<Confirmation>) -> MutexGuard<'_, Confirmation> {
    confirmed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PartialEq for ShardHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ShardHandle {}

impl fmt::Debug for ShardHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard group {}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_core::shard::HashRange;

    #[tokio::test(start_paused = true)]
    async fn release_waits_for_every_participant() {
        let handle = ShardHandle::new("shop/web", ShardProperty::Namespace);
        let number = handle.publish(|view| view.held = Arc::new(HashRanges::all()));
        assert_eq!(handle.confirmed(), number, "without participants there is no work");
        let (mut first, second) = (handle.join(), handle.join());
        first.changed().await;
        assert_eq!(first.view().number, number);
        let number = handle.publish(|view| view.held = Arc::default());
        first.confirm(number, HashRanges::default());
        assert!(handle.confirmed() < number);
        let mut confirmations = handle.subscribe_confirmations();
        drop(second);
        assert!(confirmations.has_changed().unwrap());
        confirmations.mark_unchanged();
        assert_eq!(handle.confirmed(), number);
    }

    /// Bug: a range that was lost and gained again between two looks counted as held all the time.
    #[test]
    fn range_that_comes_back_is_held_since_then() {
        let handle = ShardHandle::new("shop/web", ShardProperty::Namespace);
        let all = || Arc::new(HashRanges::all());
        let low: HashRanges = HashRange::new(0, 9).into_iter().collect();
        let rest = Arc::new(HashRanges::all().difference(&low));
        let first = handle.publish(|view| view.held = all());
        // A range that is being released belongs to the same claim.
        let second = handle.publish(|view| {
            (view.held, view.releasing) = (Arc::clone(&rest), Arc::new(low.clone()));
        });
        assert_eq!((handle.view().acting_since(5), handle.view().held_since(5)), (Some(first), None));
        let third = handle.publish(|view| (view.held, view.releasing) = (all(), Arc::default()));
        assert_eq!((handle.view().held_since(5), handle.view().held_since(10)), (Some(third), Some(first)));
        assert_eq!(handle.view().kept_since(second), *rest);
        // The token of a range that was lost and gained within one view differs.
        let range = HashRange::new(0, u64::MAX).unwrap();
        for (version, is_new) in [("1", false), ("1", false), ("2", true)] {
            let before = handle.view().held_since(10);
            let tokens = BTreeMap::from([(range, RangeToken::new(version, 1))]);
            let number = handle.publish(|view| view.tokens = Arc::new(tokens));
            let expected = if is_new { Some(number) } else { before };
            assert_eq!(handle.view().held_since(10), expected);
        }
    }

    /// A process that was paused longer than its Lease must not begin work, although it has received no new view.
    #[tokio::test(start_paused = true)]
    async fn hash_is_not_owned_after_the_deadline() {
        let handle = ShardHandle::new("shop/web", ShardProperty::Uid);
        handle.publish(|view| view.held = HashRange::new(0, 9).into_iter().collect::<HashRanges>().into());
        assert!(!handle.owns_hash(5), "nothing was renewed");
        handle.set_acts_until(Some(Instant::now() + std::time::Duration::from_secs(10)));
        assert!(handle.owns_hash(5) && !handle.owns_hash(10));
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        assert!(!handle.owns_hash(5));
    }
}
