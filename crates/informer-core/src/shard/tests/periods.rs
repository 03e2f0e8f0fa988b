//! A member over longer times: how many requests it sends, and what it does while some of them fail.

use super::*;

/// Calls the member every 100 ms until `until` seconds; each response arrives 100 ms later, `None` at the deadline of
/// the request. Returns the requests and when they were sent, in milliseconds.
fn run(
    fixture: &mut Fixture,
    millis: std::ops::Range<u64>,
    mut respond: impl FnMut(u64, &MemberRequest) -> Option<MemberResponse>,
) -> Vec<(u64, MemberRequest)> {
    let mut requests = Vec::new();
    let mut in_flight: Option<Option<MemberResponse>> = None;
    for now in millis.step_by(100) {
        let clock = Moment::at(Duration::from_millis(now));
        match in_flight.take() {
            Some(Some(response)) => fixture.member.handle_response(clock, response),
            Some(None) if fixture.member.request_deadline().is_some_and(|at| clock >= at) => {
                fixture.member.handle_response(clock, MemberResponse::Failed("timeout".to_owned()));
            }
            waiting => in_flight = waiting,
        }
        fixture.member.handle_timeout(clock);
        if in_flight.is_none()
            && let Some(request) = fixture.member.poll_request(clock, Timestamp::UNIX_EPOCH)
        {
            in_flight = Some(respond(now, &request));
            requests.push((now, request));
        }
    }
    requests
}

/// The response of a server on which only this member exists.
fn serve(request: &MemberRequest) -> MemberResponse {
    match request {
        MemberRequest::ReadAssignment => stored(assigned([Some("a"), Some("b")])),
        MemberRequest::CreateLease(record) | MemberRequest::UpdateLease(record, _) => {
            MemberResponse::Lease(record.clone(), (record.number + 10).to_string())
        }
        MemberRequest::ListLeases => MemberResponse::Leases(Vec::new()),
        MemberRequest::ReadLease | MemberRequest::DeleteLease(_) => MemberResponse::Missing,
    }
}

fn is_write(request: &MemberRequest) -> bool {
    matches!(request, MemberRequest::CreateLease(_) | MemberRequest::UpdateLease(..))
}

/// docs/decisions/sharding.md: one write and one read in half of `renew_deadline`.
#[test]
fn member_at_rest_sends_one_write_and_one_read_every_five_seconds() {
    let mut fixture = Fixture::acting_for_the_first_range();
    let requests = run(&mut fixture, 0..60_000, |_, request| Some(serve(request)));
    let writes = requests.iter().filter(|(_, request)| is_write(request)).count();
    let reads = requests.iter().filter(|(_, request)| *request == MemberRequest::ReadAssignment).count();
    assert!((10..=12).contains(&writes), "{writes} writes");
    assert!((10..=12).contains(&reads), "{reads} reads");
    assert_eq!(requests.len(), writes + reads);
    assert_eq!(fixture.events(), []);
}

/// A renewal whose response is lost is found out and repeated while the member acts.
#[test]
fn one_lost_response_does_not_end_the_work() {
    for lost in 1..20 {
        let mut fixture = Fixture::acting_for_the_first_range();
        let mut count = 0;
        let own = fixture.member.record().clone();
        run(&mut fixture, 0..60_000, |_, request| {
            count += 1;
            match request {
                _ if count == lost => None,
                MemberRequest::ReadLease => Some(MemberResponse::Lease(own.clone(), "9".to_owned())),
                _ => Some(serve(request)),
            }
        });
        assert_eq!(fixture.events(), [], "request {lost} lost");
    }
}

#[test]
fn member_that_cannot_read_the_assignment_lets_its_lease_expire_and_joins_again() {
    let mut fixture = Fixture::acting_for_the_first_range();
    let requests = run(&mut fixture, 0..40_000, |_, request| {
        let is_read = *request == MemberRequest::ReadAssignment;
        Some(if is_read { MemberResponse::Failed("forbidden".to_owned()) } else { serve(request) })
    });
    let reason = RangeLossReason::NotRenewed("forbidden".to_owned());
    assert_eq!(fixture.events(), [MemberEvent::Lost(two()[0], reason)]);
    let last_write = requests.iter().rfind(|(_, request)| is_write(request)).unwrap();
    assert!(last_write.0 <= 15_000, "{last_write:?}");
    assert_eq!(requests.last().unwrap().1, MemberRequest::ReadAssignment, "it tries again");
    // Meanwhile, the Lease was deleted.
    let mut is_missing = true;
    let requests = run(&mut fixture, 40_000..60_000, |_, request| {
        if let MemberRequest::UpdateLease(..) = request
            && is_missing
        {
            is_missing = false;
            return Some(MemberResponse::Conflict);
        }
        Some(serve(request))
    });
    let kinds: Vec<&MemberRequest> = requests.iter().map(|(_, request)| request).collect();
    let position = |is: fn(&MemberRequest) -> bool| kinds.iter().position(|request| is(request));
    let read = position(|request| *request == MemberRequest::ReadAssignment);
    let update = position(|request| matches!(request, MemberRequest::UpdateLease(..)));
    let create = position(|request| matches!(request, MemberRequest::CreateLease(_)));
    assert!(read < update && update < create, "{kinds:?}");
    assert!(fixture.member.record().claims.covers(&two()[0]), "it claims its range again");
}

/// A member that reads the assignment, but cannot list the Leases, never acts.
#[test]
fn member_that_cannot_list_leases_lets_its_lease_expire() {
    let mut fixture = Fixture::new([Some("a"), Some("b")]);
    let requests = run(&mut fixture, 0..60_000, |now, request| {
        Some(match request {
            MemberRequest::ListLeases => MemberResponse::Failed("forbidden".to_owned()),
            // The coordinator has given the range to another member.
            MemberRequest::ReadAssignment if now >= 30_000 => stored(assigned([Some("b"), Some("b")])),
            _ => serve(request),
        })
    });
    let last_write = requests.iter().rfind(|(_, request)| is_write(request)).unwrap();
    assert!(last_write.0 <= 15_100, "{last_write:?}");
    assert!(
        requests.iter().any(|(at, request)| *at > 50_000 && *request == MemberRequest::ListLeases),
        "it tries again without claims"
    );
    let requests = run(&mut fixture, 60_000..70_000, |_, request| Some(serve(request)));
    assert!(requests.iter().any(|(_, request)| is_write(request)), "{requests:?}");
}

/// Nothing succeeds: the member has left after a lease duration, and does not act since its deadline.
#[test]
fn stop_ends_without_a_server() {
    let mut fixture = Fixture::acting_for_the_first_range();
    fixture.member.stop(at(3));
    run(&mut fixture, 3_000..9_900, |_, _| None);
    assert_eq!(fixture.acting(9), [two()[0]], "its work may end in order");
    fixture.member.handle_timeout(at(10));
    assert_eq!(fixture.acting(10), []);
    assert_eq!(fixture.events().len(), 2, "release requested, and lost at the deadline");
    run(&mut fixture, 10_000..17_900, |_, _| None);
    assert!(!fixture.member.is_over());
    assert_eq!(fixture.member.next_deadline(), Some(at(18)));
    fixture.member.handle_timeout(at(18));
    assert!(fixture.member.is_over());
    assert_eq!(fixture.member.claims().count(), 0);
}

#[test]
fn failed_deletion_of_the_lease_is_repeated_until_a_lease_duration_has_passed() {
    for succeeds in [false, true] {
        let mut fixture = Fixture::acting_for_the_first_range();
        fixture.member.stop(at(0));
        fixture.member.record_released(two()[0]);
        let mut own = fixture.member.record().clone();
        let mut attempts = 0;
        run(&mut fixture, 0..16_000, |_, request| {
            Some(match request {
                MemberRequest::ReadLease => MemberResponse::Lease(own.clone(), "9".to_owned()),
                MemberRequest::DeleteLease(_) => {
                    attempts += 1;
                    if succeeds && attempts == 2 {
                        MemberResponse::Missing
                    } else {
                        MemberResponse::Failed("forbidden".to_owned())
                    }
                }
                MemberRequest::UpdateLease(record, _) => {
                    own = record.clone();
                    serve(request)
                }
                _ => serve(request),
            })
        });
        assert!(fixture.member.is_over());
        assert!(if succeeds { attempts == 2 } else { attempts > 2 }, "{attempts}");
    }
}

/// Bug: a server that answers each update with a conflict, as an admission webhook or a proxy may do, caused reads and
/// updates without a delay.
#[test]
fn repeated_conflicts_are_paced() {
    let is_rejected =
        |request: &MemberRequest| is_write(request) || matches!(request, MemberRequest::DeleteLease(_));
    for (is_stopping, is_stored) in [(false, false), (false, true), (true, true)] {
        let mut fixture = Fixture::acting_for_the_first_range();
        let own = fixture.member.record().clone();
        if is_stopping {
            fixture.member.stop(at(0));
            fixture.member.record_released(two()[0]);
        }
        let requests = run(&mut fixture, 0..10_000, |_, request| {
            Some(match request {
                request if is_rejected(request) => MemberResponse::Conflict,
                MemberRequest::ReadLease if is_stored => MemberResponse::Lease(own.clone(), "9".to_owned()),
                request => serve(request),
            })
        });
        assert!(requests.len() <= 12, "{is_stopping} {is_stored}: {requests:?}");
        assert!(requests.iter().filter(|(_, request)| is_rejected(request)).count() >= 2, "{requests:?}");
    }
}

/// Bug: a range that was assigned to its owner again while its work ended had no member for up to half a renew deadline:
/// until the next regular read, or the next regular renewal if the assignment was read before the claim was removed.
#[test]
fn range_that_comes_back_while_its_work_ends_is_claimed_at_once() {
    let [first, _] = two();
    for is_read_before_write in [false, true] {
        let mut fixture = Fixture::acting_for_the_first_range();
        fixture.read_assignment(1, [Some("b"), Some("b")]);
        assert_eq!(fixture.events(), [MemberEvent::ReleaseRequested(first)]);
        let own = if is_read_before_write {
            fixture.member.read_assignment();
            assert_eq!(fixture.request(1), Some(MemberRequest::ReadAssignment));
            fixture.member.record_released(first);
            fixture.respond(1, stored(assigned([Some("a"), Some("b")])));
            fixture.write(1)
        } else {
            fixture.read_assignment(1, [Some("a"), Some("b")]);
            fixture.member.record_released(first);
            assert!(fixture.write(1).claims.is_empty());
            assert_eq!(fixture.request(1), Some(MemberRequest::ReadAssignment));
            fixture.respond(1, stored(assigned([Some("a"), Some("b")])));
            fixture.write(1)
        };
        fixture.list(1, &own, &[]);
        assert_eq!(fixture.acting(1), [first]);
        assert_eq!(fixture.request(1), None);
    }
}

/// A Lease that disappears before the coordinator has observed that its member leaves counts as deleted by hand.
#[test]
fn member_reports_that_it_leaves_before_it_deletes_its_lease() {
    let mut fixture = Fixture::acting_for_the_first_range();
    fixture.member.stop(at(1));
    fixture.member.record_released(two()[0]);
    let requests = run(&mut fixture, 1_000..2_000, |_, request| Some(serve(request)));
    let [(1_000, MemberRequest::UpdateLease(record, _)), (at, MemberRequest::DeleteLease(_))] = &requests[..]
    else {
        panic!("{requests:?}");
    };
    assert!(record.is_leaving && record.claims.is_empty());
    assert!((1_100..=1_200).contains(at), "{at}");
    assert!(fixture.member.is_over());
}

/// Bug: members that were started together, for example by an update, renewed their Leases at the same moments forever.
#[test]
fn renewals_of_members_that_start_together_spread() {
    let mut renewed: Vec<Duration> = Vec::new();
    for seed in 0..20 {
        let mut member = Member::new("a", "1", ElectionConfig::default(), seed).unwrap();
        let (mut now, mut count, mut renewed_at) = (at(0), 0, at(0));
        while count < 120 {
            while let Some(request) = member.poll_request(now, Timestamp::UNIX_EPOCH) {
                if matches!(request, MemberRequest::UpdateLease(..)) && now > at(0) {
                    let period = now.since_origin().abs_diff(renewed_at.since_origin());
                    assert!((4_750..=5_000).contains(&period.as_millis()), "{period:?}");
                    (count, renewed_at) = (count + 1, now);
                }
                let response = match &request {
                    MemberRequest::ListLeases => MemberResponse::Leases(vec![member.record().clone()]),
                    request => serve(request),
                };
                member.handle_response(now, response);
            }
            now = member.next_deadline().unwrap();
        }
        renewed.push(renewed_at.since_origin());
    }
    // After ten minutes. The periods are 2.5% shorter on average.
    let (first, last) = (renewed.iter().min().unwrap(), renewed.iter().max().unwrap());
    assert!(last.abs_diff(*first) > Duration::from_secs(2), "{renewed:?}");
    let mean = renewed.iter().sum::<Duration>() / 20;
    assert!((583..=587).contains(&mean.as_secs()), "{mean:?}");
}
