//! A store whose objects expire, in virtual time.

use super::{object, texts};
use informer::cache::TtlStore;
use informer::{Index, Key};
use std::time::Duration;
use tokio::time::advance;

const TTL: Duration = Duration::from_secs(10);

/// As in client-go, an object expires when its age is greater than the TTL, not equal to it.
#[tokio::test(start_paused = true)]
async fn object_expires_on_read_after_its_ttl() {
    let (store, key) = (TtlStore::new(TTL), Key::new("a", "x"));
    store.insert([object("a/x u1 1 red")]);
    advance(TTL).await;
    assert!(store.get(&key).is_some(), "exactly at the TTL");
    advance(Duration::from_millis(1)).await;
    assert!(store.get(&key).is_none());
    assert_eq!(texts(&store.remove_expired()), [""; 0], "the read has removed it");
}

#[tokio::test(start_paused = true)]
async fn insert_renews_also_an_equal_object() {
    let store = TtlStore::new(TTL);
    store.insert([object("a/x u1 1 red"), object("a/y u2 2 red")]);
    advance(TTL).await;
    assert_eq!(texts(&store.insert([object("a/x u1 1 red")])), [""; 0]);
    advance(TTL).await;
    // Expired objects are deleted before the write.
    assert_eq!(texts(&store.insert([object("a/z u3 3 red")])), ["- a/y@2", "+ a/z@3"]);
    advance(Duration::from_millis(1)).await;
    assert_eq!(texts(&store.remove_expired()), ["- a/x@1"]);
    assert_eq!(store.snapshot().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn removed_object_does_not_expire_later() {
    let store = TtlStore::new(TTL);
    let by_value = store.add_index(Index::label("value")).unwrap();
    store.insert([object("a/x u1 1 red")]);
    assert_eq!(texts(&store.remove([&Key::new("a", "x"), &Key::new("a", "unknown")])), ["- a/x@1"]);
    advance(TTL / 2).await;
    store.insert([object("a/x u1 2 blue")]);
    advance(TTL).await;
    let snapshot = store.snapshot();
    assert_eq!(snapshot.by_index(&by_value, "blue").count(), 1, "its age counts from the second insert");
    advance(TTL).await;
    assert_eq!((snapshot.len(), store.snapshot().len()), (1, 0), "time does not change a snapshot");
}

#[tokio::test(start_paused = true)]
async fn clones_are_the_same_store() {
    let store = TtlStore::new(TTL);
    let clone = store.clone();
    clone.insert([object("a/x u1 1 red")]);
    assert_eq!(store.snapshot().len(), 1);
    advance(TTL * 2).await;
    assert_eq!(texts(&store.remove_expired()), ["- a/x@1"]);
    assert_eq!(texts(&clone.remove_expired()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn zero_ttl_never_expires() {
    let store = TtlStore::new(Duration::ZERO);
    store.insert([object("a/x u1 1 red")]);
    advance(Duration::from_secs(3_600_000)).await;
    assert_eq!(store.snapshot().len(), 1);
}
