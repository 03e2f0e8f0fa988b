//! Unreachable servers, lost responses, pauses.

use crate::harness::{Groups, Member, acting, pass};
use informer_apiserver::{ApiServer, Verb, faults};
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

async fn pair(server: &ApiServer, groups: &Groups) -> [Member; 2] {
    let one = Member::start(server, groups, "one");
    one.wait_for_ranges(256).await;
    let two = Member::start(server, groups, "two");
    two.wait_for_ranges(128).await;
    [one, two]
}

#[tokio::test(start_paused = true)]
async fn no_member_acts_when_its_lease_may_expire() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let [one, two] = pair(&server, &groups).await;
    let outage = server.inject(faults::outage());
    let begun = Instant::now();
    one.wait_for_ranges(0).await;
    two.wait_for_ranges(0).await;
    assert!(begun.elapsed() <= 11 * SECOND, "{:?}", begun.elapsed());
    pass(SECOND).await;
    assert!(one.status().held.is_empty() && !one.group.is_ready());
    assert!(!one.group.owns_hash(0) && !two.group.owns_hash(0));
    pass(60 * SECOND).await;
    assert!(one.status().last_error.is_some());
    drop(outage);
    let took = one.wait_for_ranges(128).await + two.wait_for_ranges(128).await;
    assert!(took < 60 * SECOND, "{took:?}");
    assert!(one.status().lost >= 128);
}

/// One process does not reach the server; its ranges move after it has stopped to act.
#[tokio::test(start_paused = true)]
async fn ranges_of_separated_member_move_after_it_has_lost_them() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let client = server.client_as(informer_apiserver::User::new("apart").group("system:masters"));
    let group =
        informer::shard::ShardGroup::builder(client, "default", "shop").identity("two").build().unwrap();
    let two = groups.run(group);
    two.wait_for_ranges(128).await;
    let separated = server.inject(faults::outage().for_user("apart"));
    one.wait_for_ranges(256).await;
    assert_eq!(acting(&two.status()), informer::shard::HashRanges::default());
    drop(separated);
    two.wait_for_ranges(128).await;
    assert_eq!(one.ranges(), 128);
}

/// Bug: if the deletion of an expired Lease was rejected although nothing had changed, the coordinator listed the Leases
/// again and again, and ignored each list that was not newer than its watch: the ranges moved only when a list was ahead.
#[tokio::test(start_paused = true)]
async fn rejected_deletion_of_an_expired_lease_is_repeated() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let [one, two] = pair(&server, &groups).await;
    let rejected = faults::respond(409).for_verb(Verb::Delete).for_resource("leases").max_hits(2);
    let _rejected = server.inject(rejected);
    two.task.abort();
    let took = one.wait_for_ranges(256).await;
    assert!(took < 30 * SECOND, "{took:?}");
}

/// The clock jumps by an hour, as on a machine that was suspended: no member acts before the Leases are renewed.
#[tokio::test(start_paused = true)]
async fn member_does_not_act_after_a_pause() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let [one, two] = pair(&server, &groups).await;
    for _ in 0..5 {
        tokio::time::advance(3_600 * SECOND).await;
        for hash in [0, 1 << 62, u64::MAX] {
            assert!(!one.group.owns_hash(hash) && !two.group.owns_hash(hash), "{hash}");
            assert!(one.group.token(hash).is_none() && two.group.token(hash).is_none());
        }
        one.wait_until(|one| one.ranges() == 128 && two.ranges() == 128).await;
    }
}

/// Requests take effect, but their responses do not arrive.
#[tokio::test(start_paused = true)]
async fn lost_responses_delay_but_never_duplicate() {
    for (seed, resource, verb) in [
        (1, "leases", Verb::Update),
        (2, "leases", Verb::Create),
        (3, "leases", Verb::List),
        (4, "configmaps", Verb::Update),
        (5, "configmaps", Verb::Create),
        (6, "leases", Verb::Delete),
    ] {
        let (server, groups) = (ApiServer::new(), Groups::default());
        let lost = faults::truncate(3).for_resource(resource).for_verb(verb).probability_percent(50, seed);
        let lost = server.inject(lost);
        let mut members = Vec::new();
        for identity in ["a", "b", "c"] {
            members.push(Member::start(&server, &groups, identity));
            pass(20 * SECOND).await;
        }
        members.remove(0).stop().await;
        pass(60 * SECOND).await;
        drop(lost);
        for member in &members {
            let took = member.wait_until(|member| member.ranges() == 128).await;
            assert!(took < 60 * SECOND, "{verb:?} {resource}: {took:?}");
        }
    }
}

/// Requests without a response do not block a member forever.
#[tokio::test(start_paused = true)]
async fn hanging_requests_are_cancelled() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let stalled = server.inject(faults::stall_request().max_hits(4));
    let one = Member::start(&server, &groups, "one");
    let took = one.wait_for_ranges(256).await;
    assert!(took < 60 * SECOND, "{took:?}");
    assert_eq!(stalled.hits(), 4);
    let stalled = server.inject(faults::stall_request().for_verb(Verb::Update).max_hits(1));
    pass(30 * SECOND).await;
    assert_eq!((stalled.hits(), one.ranges(), one.status().lost), (1, 256, 0));
}

/// A watch that shows nothing delays a move until the next read.
#[tokio::test(start_paused = true)]
async fn broken_watches_delay_moves_but_do_not_prevent_them() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let broken = server.inject(faults::respond(500).for_verb(Verb::Watch).for_resource("configmaps"));
    let two = Member::start(&server, &groups, "two");
    let took = two.wait_for_ranges(128).await;
    assert!(took < 20 * SECOND, "{took:?}");
    drop(broken);
    assert_eq!(one.ranges(), 128);
}

/// Bug: while the coordinator's watch of the Leases showed nothing, the ranges of members that ended did not move: each
/// deletion in the version that it had observed was a conflict, after which it waited for the watch.
#[tokio::test(start_paused = true)]
async fn silent_watch_of_the_leases_does_not_prevent_moves() {
    for is_silent in [true, false] {
        let (server, groups) = (ApiServer::new(), Groups::default());
        let one = Member::start(&server, &groups, "one");
        one.wait_for_ranges(256).await;
        // The watches that are open become silent, or end and are not accepted again.
        let rule = if is_silent { faults::stall_watch() } else { faults::respond(500).for_verb(Verb::Watch) };
        let two = Member::start(&server, &groups, "two");
        two.wait_for_ranges(128).await;
        let ended = (!is_silent).then(|| server.inject(faults::break_watch().for_resource("leases")));
        let broken = server.inject(rule.for_resource("leases"));
        pass(12 * SECOND).await;
        two.kill();
        let took = one.wait_for_ranges(256).await;
        assert!(took < 40 * SECOND, "{took:?}, silent: {is_silent}");
        let three = Member::start(&server, &groups, "three");
        let took = three.wait_for_ranges(128).await;
        assert!(took < 20 * SECOND, "{took:?}, silent: {is_silent}");
        let hits = broken.hits();
        drop((ended, broken));
        pass(60 * SECOND).await;
        assert_eq!((one.ranges(), three.ranges(), one.status().lost), (128, 128, 0), "{hits}");
    }
}
