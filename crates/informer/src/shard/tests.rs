//! Participants: releases wait for them, and no other member acts meanwhile.

use super::{HashRanges, ShardGroup};
use crate::shard_view::{Participant, ShardView};
use informer_apiserver::ApiServer;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Starts a member; it leaves when the sender is dropped.
fn start(server: &ApiServer, identity: &str) -> (ShardGroup, oneshot::Sender<()>) {
    let builder = ShardGroup::builder(server.client(), "default", "shop").identity(identity);
    let group = builder.release_timeout(30 * SECOND).build().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = group.clone();
    tokio::spawn(async move { running.run(async { drop(stopped.await) }).await.unwrap() });
    (group, stop)
}

async fn wait_for(participant: &mut Participant, is_met: impl Fn(&ShardView) -> bool) -> ShardView {
    let wait = async {
        loop {
            let view = participant.view();
            if is_met(&view) {
                return view;
            }
            participant.changed().await;
        }
    };
    timeout(600 * SECOND, wait).await.expect("the view is published in time")
}

fn is_half(ranges: &HashRanges) -> bool {
    (ranges.share() - 0.5).abs() < 1e-9
}

async fn wait_for_share(group: &ShardGroup, share: f64) {
    let mut status = group.subscribe_status();
    let wait = status.wait_for(|status| (status.held.share() - share).abs() < 1e-9);
    drop(timeout(600 * SECOND, wait).await.expect("the ranges are held in time").unwrap());
}

#[tokio::test(start_paused = true)]
async fn release_waits_for_every_participant() {
    let server = ApiServer::new();
    let (one, _stop_one) = start(&server, "one");
    let mut slow = one.handle().join();
    let mut fast = one.handle().join();
    let all = wait_for(&mut slow, |view| view.is_settled && view.held.share() > 0.99).await;
    let (two, _stop_two) = start(&server, "two");
    let releasing = wait_for(&mut slow, |view| !view.releasing.is_empty()).await;
    assert!(releasing.number > all.number);
    assert!(is_half(&releasing.held) && is_half(&releasing.releasing));
    let seen = fast.view().number;
    fast.confirm(seen, HashRanges::default());
    // An earlier view does not count.
    slow.confirm(all.number, HashRanges::default());
    for _ in 0..20 {
        tokio::time::sleep(SECOND).await;
        assert!(two.status().held.is_empty());
        assert!(is_half(&slow.view().releasing));
    }
    slow.confirm(releasing.number, HashRanges::default());
    wait_for_share(&two, 0.5).await;
    let after = wait_for(&mut slow, |view| view.releasing.is_empty()).await;
    assert!(after.is_settled && after.held.share() > 0.49);
    assert!(one.status().last_handover.unwrap() >= 20 * SECOND);
}

/// Bug: all ranges that were released in one view waited until the work for the slowest of them had ended.
#[tokio::test(start_paused = true)]
async fn range_with_slow_work_does_not_delay_others() {
    let server = ApiServer::new();
    let (one, _stop_one) = start(&server, "one");
    let mut slow = one.handle().join();
    wait_for(&mut slow, |view| view.is_settled && view.held.share() > 0.99).await;
    let (two, _stop_two) = start(&server, "two");
    let releasing = wait_for(&mut slow, |view| !view.releasing.is_empty()).await;
    let range = releasing.range_of(releasing.releasing.iter().next().unwrap().first()).unwrap();
    let begun = Instant::now();
    slow.confirm(releasing.number, [range].into_iter().collect());
    wait_for_share(&two, 127.0 / 256.0).await;
    assert!(begun.elapsed() < 2 * SECOND, "{:?}", begun.elapsed());
    // The view without the ranges that were released.
    let view = wait_for(&mut slow, |view| view.releasing.share() < 0.01).await;
    slow.confirm(view.number, [range].into_iter().collect());
    tokio::time::sleep(10 * SECOND).await;
    assert!(!two.status().held.overlaps(&range) && slow.view().releasing.covers(&range));
    slow.confirm(view.number, HashRanges::default());
    wait_for_share(&two, 0.5).await;
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_after_the_release_timeout_but_the_range_stays() {
    let server = ApiServer::new();
    let (one, _stop_one) = start(&server, "one");
    let mut participant = one.handle().join();
    wait_for(&mut participant, |view| view.held.share() > 0.99).await;
    let (two, _stop_two) = start(&server, "two");
    wait_for(&mut participant, |view| !view.releasing.is_empty()).await;
    let begun = Instant::now();
    let dropped = wait_for(&mut participant, |view| view.releasing.is_empty()).await;
    assert_eq!(begun.elapsed().as_secs(), 30);
    assert!((dropped.held.share() - 0.5).abs() < 1e-9);
    // The work blocks its thread: no other member may act.
    tokio::time::sleep(120 * SECOND).await;
    assert!(two.status().held.is_empty());
    assert_eq!(one.status().lost, 0);
    drop(participant);
    wait_for_share(&two, 0.5).await;
}

#[tokio::test(start_paused = true)]
async fn participant_that_joins_later_does_not_delay_a_release() {
    let server = ApiServer::new();
    let (one, _stop_one) = start(&server, "one");
    let mut first = one.handle().join();
    wait_for(&mut first, |view| view.held.share() > 0.99).await;
    let (two, stop_two) = start(&server, "two");
    let releasing = wait_for(&mut first, |view| !view.releasing.is_empty()).await;
    let mut second = one.handle().join();
    assert_eq!(second.view(), releasing);
    first.confirm(releasing.number, HashRanges::default());
    wait_for_share(&two, 0.5).await;
    // The ranges return when the other member leaves.
    drop(stop_two);
    let settled = wait_for(&mut second, |view| view.held.share() > 0.99).await;
    assert!(settled.number > releasing.number);
}

#[tokio::test(start_paused = true)]
async fn stop_waits_until_participants_confirm() {
    let server = ApiServer::new();
    let (one, stop) = start(&server, "one");
    let mut participant = one.handle().join();
    wait_for(&mut participant, |view| view.held.share() > 0.99).await;
    drop(stop);
    let releasing = wait_for(&mut participant, |view| !view.releasing.is_empty()).await;
    assert!(releasing.held.is_empty() && !one.owns_hash(7) && one.token(7).is_some());
    tokio::time::sleep(20 * SECOND).await;
    assert!(one.status().is_running && one.handle().acts());
    participant.confirm(releasing.number, HashRanges::default());
    let ended = wait_for(&mut participant, |view| view.releasing.is_empty()).await;
    assert!(ended.held.is_empty());
    let mut status = one.subscribe_status();
    status.wait_for(|status| !status.is_running).await.unwrap();
}
