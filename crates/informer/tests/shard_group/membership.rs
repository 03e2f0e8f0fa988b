//! Joining, leaving, ending, rolling updates.

use crate::harness::{Groups, Member, lease, pass};
use informer::election::ElectionConfig;
use informer::shard::{RangeCount, ShardGroup, ShardKey, shard_hash};
use informer_apiserver::{ApiServer, Verb};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn single_member_gets_all_ranges() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    assert!(!one.group.owns_hash(7) && !one.group.is_ready());
    let took = one.wait_for_ranges(256).await;
    assert!(took < 5 * SECOND, "{took:?}");
    one.wait_until(|one| one.status().is_settled).await;
    let status = one.status();
    assert!(status.is_coordinator && status.is_considered && one.group.is_ready(), "{status:?}");
    assert!(one.group.owns_hash(0) && one.group.owns_hash(u64::MAX));
    let version = lease(&server, "one").unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let token = one.group.token(7).unwrap();
    assert!(token.version.parse::<u64>().unwrap() <= version.parse().unwrap(), "{token:?}");
    assert_eq!((status.gained, status.released, status.lost), (256, 0, 0));
    let stopped = one.stop().await;
    assert_eq!(lease(&server, "one"), None);
    assert!(!stopped.owns_hash(7) && stopped.token(7).is_none() && !stopped.is_ready());
}

#[tokio::test(start_paused = true)]
async fn ranges_are_divided_with_few_moves() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let two = Member::start(&server, &groups, "two");
    let took = two.wait_for_ranges(128).await;
    assert!(took < SECOND, "{took:?}");
    assert_eq!(one.ranges(), 128);
    let three = Member::start(&server, &groups, "three");
    let took = three.wait_for_ranges(85).await;
    assert!(took < SECOND, "{took:?}");
    let mut ranges = [one.ranges(), two.ranges()];
    ranges.sort_unstable();
    assert_eq!(ranges, [85, 86]);
    // 128 moved to the second member, 85 to the third, and no other one.
    let gained = [&one, &two, &three].map(|member| member.status().gained);
    assert_eq!(gained, [256, 128, 85]);
    assert!((groups.check().share() - 1.0).abs() < 1e-9);
    assert_eq!([&one, &two, &three].iter().filter(|member| member.status().is_coordinator).count(), 1);
}

/// In each order: the coordinator, and a member that is not.
#[tokio::test(start_paused = true)]
async fn ranges_of_leaving_member_move_within_a_second() {
    for coordinator_leaves in [false, true] {
        let (server, groups) = (ApiServer::new(), Groups::default());
        let one = Member::start(&server, &groups, "one");
        one.wait_for_ranges(256).await;
        let two = Member::start(&server, &groups, "two");
        two.wait_for_ranges(128).await;
        let (leaving, staying) = if coordinator_leaves { (one, two) } else { (two, one) };
        assert_eq!(leaving.status().is_coordinator, coordinator_leaves);
        let begun = Instant::now();
        let stop = tokio::spawn(leaving.stop());
        staying.wait_for_ranges(256).await;
        assert!(begun.elapsed() < SECOND, "{:?}, coordinator: {coordinator_leaves}", begun.elapsed());
        let left = stop.await.unwrap();
        assert!(!left.status().is_running);
        staying.wait_until(|staying| staying.status().is_coordinator).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ranges_of_killed_member_move_after_its_lease_has_expired() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let two = Member::start(&server, &groups, "two");
    two.wait_for_ranges(128).await;
    let killed = two.kill();
    tokio::task::yield_now().await;
    assert!(!killed.owns_hash(0) && !killed.owns_hash(u64::MAX));
    let took = one.wait_for_ranges(256).await;
    // The last renewal was up to five seconds before.
    assert!(took > 9 * SECOND && took < 17 * SECOND, "{took:?}");
    assert_eq!(lease(&server, "two"), None);
    // The coordinator itself: another one is elected, and observes the Lease for its duration.
    let three = Member::start(&server, &groups, "three");
    three.wait_for_ranges(128).await;
    one.kill();
    let took = three.wait_for_ranges(256).await;
    assert!(took < 40 * SECOND, "{took:?}");
}

/// The documented bound. Nothing remains of the first processes but their Leases, also that of the election.
#[tokio::test(start_paused = true)]
async fn ranges_wait_40_seconds_at_most_if_all_members_are_killed_and_others_start() {
    for pause in [0, 1, 4, 9] {
        let (server, groups) = (ApiServer::new(), Groups::default());
        let mut members = Vec::new();
        for identity in ["one", "two", "three"] {
            members.push(Member::start(&server, &groups, identity));
        }
        wait_for_all_ranges(&members).await;
        pass(pause * SECOND).await;
        for member in members {
            member.kill();
        }
        let begun = Instant::now();
        let members = ["four", "five", "six"].map(|identity| Member::start(&server, &groups, identity));
        wait_for_all_ranges(&members).await;
        let took = begun.elapsed();
        assert!(took > 15 * SECOND && took <= 40 * SECOND, "{took:?}");
        assert!((groups.check().share() - 1.0).abs() < 1e-9);
        assert!(["one", "two", "three"].iter().all(|identity| lease(&server, identity).is_none()));
    }
}

async fn wait_for_all_ranges(members: &[Member]) {
    let all = || members.iter().map(Member::ranges).sum::<usize>() == 256;
    members[0].wait_until(|_| all()).await;
}

#[tokio::test(start_paused = true)]
async fn dropped_run_ends_immediately_and_another_one_may_follow() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let group = one.group.clone();
    one.task.abort();
    assert!(one.task.await.unwrap_err().is_cancelled());
    assert!(!group.owns_hash(7) && !group.status().is_running);
    // The Lease of the first run has to expire.
    let again = tokio::spawn({
        let group = group.clone();
        async move { group.run(std::future::pending()).await }
    });
    let mut status = group.subscribe_status();
    let begun = Instant::now();
    status.wait_for(|status| status.is_settled && status.held.share() > 0.99).await.unwrap();
    assert!(begun.elapsed() > 10 * SECOND && begun.elapsed() < 45 * SECOND, "{:?}", begun.elapsed());
    again.abort();
}

#[tokio::test(start_paused = true)]
async fn second_process_with_same_identity_waits() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let again = Member::start(&server, &groups, "one");
    for _ in 0..60 {
        pass(SECOND).await;
        assert_eq!((one.ranges(), again.ranges()), (256, 0));
        assert!(!again.group.is_ready());
    }
    one.stop().await;
    again.wait_for_ranges(256).await;
}

#[tokio::test(start_paused = true)]
async fn ranges_move_twice_at_most_in_a_rolling_update() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let start = |identity: &str, revision: &str| {
        Member::start_with(&server, &groups, identity, |builder| builder.revision(revision))
    };
    let mut old: Vec<Member> = ["a", "b", "c"].map(|identity| start(identity, "1")).into();
    for member in &old {
        member.wait_until(|member| (85..=86).contains(&member.ranges())).await;
    }
    let mut gained_at_first: u64 = old.iter().map(|member| member.status().gained).sum();
    let mut new = Vec::new();
    for identity in ["d", "e", "f"] {
        let surge = start(identity, "2");
        // A member of the new revision is ready before it has ranges.
        surge.wait_until(|surge| surge.group.is_ready()).await;
        new.push(surge);
        pass(SECOND).await;
        assert_eq!(old.iter().map(|member| member.status().gained).sum::<u64>(), gained_at_first);
        gained_at_first -= old[0].status().gained;
        old.remove(0).stop().await;
        pass(SECOND).await;
        assert!((groups.check().share() - 1.0).abs() < 1e-9);
    }
    for member in &new {
        member.wait_until(|member| (85..=86).contains(&member.ranges())).await;
    }
    let gained: u64 = new.iter().map(|member| member.status().gained).sum();
    assert!(gained <= 2 * 256, "{gained}");
    // Epochs count the owners of a range, and begin with 1.
    let epochs: Vec<u64> = new.iter().map(|member| member.status().highest_epoch).collect();
    assert!(epochs.iter().all(|epoch| (2..=3).contains(epoch)), "{epochs:?}");
}

/// Each observed step was a version of the assignment, and each version a read by every member: a start of 40 members
/// caused 40 versions and 40 times as many reads.
#[tokio::test(start_paused = true)]
async fn members_that_start_together_cause_few_versions_and_reads() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let before = server.recorded_requests().len();
    let begun = Instant::now();
    let mut members = Vec::new();
    for index in 0..40 {
        members.push(Member::start(&server, &groups, &format!("m{index}")));
        pass(SECOND / 40).await;
    }
    for member in &members {
        member.wait_until(|member| member.status().is_settled && member.ranges() >= 6).await;
    }
    assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
    let requests = server.recorded_requests().split_off(before);
    let count = |verb: Verb| {
        requests.iter().filter(|request| request.verb == verb && request.plural == "configmaps").count()
    };
    let (versions, reads) = (count(Verb::Update), count(Verb::Get));
    assert!(versions <= 12, "{versions} versions");
    assert!(reads <= 41 * 12, "{reads} reads");
    assert_eq!(one.status().highest_epoch, 1);
    assert!(members.iter().all(|member| member.status().highest_epoch >= 2));
}

/// The formulas of the documentation, for 4 and 100 members: two requests per half of the renew deadline for each member,
/// and those of the election.
#[tokio::test(start_paused = true)]
async fn requests_at_rest_are_few() {
    for number in [4, 100] {
        let (server, groups) = (ApiServer::new(), Groups::default());
        let start = |index| Member::start(&server, &groups, &format!("m{index}"));
        let members: Vec<Member> = (0..number).map(start).collect();
        let share = 256 / number;
        for member in &members {
            member.wait_until(|member| (share..=share + 1).contains(&member.ranges())).await;
        }
        pass(30 * SECOND).await;
        let before = server.recorded_requests().len();
        pass(100 * SECOND).await;
        let requests = server.recorded_requests().split_off(before);
        let count = |verb: Verb, plural: &str, is_election: bool| {
            let is_counted =
                |name: Option<&str>| name.is_some_and(|name| name.ends_with("-coordinator")) == is_election;
            let matching = requests.iter().filter(|request| request.verb == verb && request.plural == plural);
            matching.filter(|request| is_counted(request.name.as_deref())).count()
        };
        let (renewals, elections) =
            (count(Verb::Update, "leases", false), count(Verb::Update, "leases", true));
        println!("{number} members: {} writes of Leases in 100 s", renewals + elections);
        // One in 5 s, or up to a twentieth more often.
        let expected = 19 * number..=21 * number + number / 2;
        assert!(expected.contains(&renewals), "{number} members: {renewals} renewals");
        let reads = count(Verb::Get, "configmaps", false);
        assert!(expected.contains(&reads), "{number} members: {reads} reads");
        // One renewal in 2 s; the others read the Lease about every 3.2 s.
        assert!((45..=52).contains(&elections), "{elections}");
        let candidates = count(Verb::Get, "leases", true);
        assert!(candidates <= 40 * number, "{candidates}");
        let others = requests.len() - renewals - reads - elections - candidates;
        assert!(others <= 2 * number, "watches may be opened again: {others}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_are_checked() {
    let server = ApiServer::new();
    let builder = |name: &str| ShardGroup::builder(server.client(), "default", name);
    for name in ["", "Shop", "shop_1", &"x".repeat(64)] {
        assert!(builder(name).build().is_err(), "{name}");
    }
    for identity in ["", "coordinator", "A", "a b", &"x".repeat(250)] {
        assert!(builder("shop").identity(identity).build().is_err(), "{identity}");
    }
    for ranges in [0, 3, 2_048] {
        assert!(builder("shop").ranges(ranges).is_err(), "{ranges}");
    }
    assert!(builder("shop").config(ElectionConfig::new(10 * SECOND, 10 * SECOND, SECOND)).is_err());
    // No Lease counts for more than an hour, so the member would act longer.
    assert!(builder("shop").config(ElectionConfig::new(7_200 * SECOND, 3_600 * SECOND, SECOND)).is_err());
    let group = builder("shop").ranges(1_024).unwrap().shard_by(ShardKey::Uid).build().unwrap();
    assert_eq!((group.shard_by(), group.to_string().as_str()), (ShardKey::Uid, "default/shop"));
    assert_ne!(group.identity(), builder("shop").build().unwrap().identity());
}

/// The figures in the documentation of sharding by namespace.
#[test]
fn numbered_namespaces_are_in_few_ranges() {
    let ranges: Vec<_> = RangeCount::default().ranges().collect();
    let in_ranges = |names: Vec<String>| {
        let range = |name: &String| ranges.iter().position(|range| range.contains(shard_hash(name))).unwrap();
        names.iter().map(range).collect::<BTreeSet<usize>>().len()
    };
    assert_eq!(in_ranges((1..100).map(|number| format!("team-{number:02}")).collect()), 1);
    assert_eq!(in_ranges((0..1000).map(|number| format!("tenant-{number:03}")).collect()), 13);
    assert!(in_ranges((0..1000).map(|number| format!("{number:03}-tenant")).collect()) > 200);
}
