//! Members that divide the objects by different keys.

use crate::harness::{Groups, Member, NAMESPACE, acting, assignment, pass};
use informer::manager::Manager;
use informer::shard::{ShardGroup, ShardKey};
use informer_apiserver::ApiServer;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn by_uid(server: &ApiServer, groups: &Groups, identity: &str) -> Member {
    Member::start_with(server, groups, identity, |builder| builder.shard_by(ShardKey::Uid))
}

/// In a rolling update that changed the key, members with the old key and with the new one acted at the same time: an
/// object was acted on by two members or by none, without a message.
#[tokio::test(start_paused = true)]
async fn member_with_another_key_does_not_act_and_reports_why() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let builder = ShardGroup::builder(server.client(), NAMESPACE, "shop").identity("two");
    let group = builder.shard_by(ShardKey::Uid).build().unwrap();
    let manager = Manager::new().add_shard_group(&group);
    let handle = manager.handle();
    let run = tokio::spawn(manager.run_until(std::future::pending()));
    for _ in 0..60 {
        pass(SECOND).await;
        assert_eq!((one.ranges(), acting(&group.status()).is_empty()), (256, true));
    }
    let expected = "divide objects by uid: other members of the group divide them by namespace (give the group another \
                    name when the key changes, or end all members with the earlier key)";
    assert_eq!(group.status().last_error.as_deref(), Some(expected));
    let failures = handle.readiness_failures();
    let reason = format!("shard group default/shop: member two: not considered yet: {expected}");
    assert!(failures.contains(&reason), "{failures:?}");
    assert!(one.group.is_ready() && one.status().last_error.is_none(), "{:?}", one.status());
    // The last member with the earlier key ends.
    one.stop().await;
    handle.wait_until_ready(60 * SECOND).await.unwrap();
    let mut status = group.subscribe_status();
    status.wait_for(|status| status.is_settled && status.held.share() > 0.99).await.unwrap();
    assert_eq!(group.status().last_error, None);
    handle.stop();
    run.await.unwrap().unwrap();
}

/// The first assignment decides which of them act.
#[tokio::test(start_paused = true)]
async fn members_with_different_keys_that_start_together_never_both_act() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let members = [Member::start(&server, &groups, "one"), by_uid(&server, &groups, "two")];
    for _ in 0..600 {
        pass(SECOND / 10).await;
        assert!(members.iter().any(|member| member.ranges() == 0));
    }
    let mut ranges = [members[0].ranges(), members[1].ranges()];
    ranges.sort_unstable();
    assert_eq!(ranges, [0, 256]);
    assert_eq!(members.iter().filter(|member| member.group.is_ready()).count(), 1);
    // The assignment is lost: the members that act keep their ranges.
    server.delete("v1", "configmaps", Some(NAMESPACE), "shop-assignment").unwrap();
    for _ in 0..20 {
        pass(SECOND).await;
        let after = [members[0].ranges(), members[1].ranges()];
        assert_eq!(after.iter().max(), Some(&256));
    }
    assert!(assignment(&server).is_some());
}
