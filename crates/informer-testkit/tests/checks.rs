//! Each check that a simulation makes fails for a program that violates it.

use std::time::Duration;

use informer::SharedInformerFactory;
use informer_testkit::{Actor, Check, Cluster, FaultKind, ProgramContext, Simulation, State, Status};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::programs::{copy_simulation, map, maps, name_of, pause, two_sources};

/// Runs the simulation, which must fail in this check.
fn fails_in(simulation: Simulation, check: &str) -> informer_testkit::SimulationFailure {
    let failure = simulation.seeds(0..300).try_run().expect_err("the check must fail");
    assert_eq!(failure.check, check, "{failure}");
    *failure
}

#[test]
fn correct_program_passes_all_checks() {
    let summary = copy_simulation()
        .always("copies have a source", |state: &State| {
            let copies = state.list::<ConfigMap>();
            let copies = copies.iter().filter(|map| name_of(map).ends_with("-copy"));
            copies.count() <= 2
        })
        .eventually("there are two copies", |state: &State| {
            let count =
                state.list::<ConfigMap>().iter().filter(|map| name_of(map).ends_with("-copy")).count();
            if count == 2 { Ok(()) } else { Err(format!("{count} copies")) }
        })
        .seeds(0..100)
        .run();
    assert_eq!(summary.seeds, 100);
}

#[test]
fn conditions_of_the_user_are_checked() {
    let failure = fails_in(
        copy_simulation()
            .always("no copies", |state: &State| state.get::<ConfigMap>("default", "a-copy").is_none()),
        "no copies",
    );
    assert_eq!((failure.chosen_faults, failure.steps.len()), (0, 2), "it fails in the run without faults");
    let failure = fails_in(copy_simulation().eventually("enough", |_: &State| Err("too few")), "enough");
    assert_eq!(failure.message, "too few");
}

/// A copy is created only once by each instance, whether or not that succeeds.
#[test]
fn final_state_is_compared_with_a_run_without_faults() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        pause(1).await;
        let maps = maps(context.client());
        if maps.get_opt("a-done").await?.is_none() {
            maps.create(&PostParams::default(), &map("a-done", "done")).await?;
            maps.create(&PostParams::default(), &map("a-copy", "copy")).await?;
        }
        std::future::pending::<Result<(), kube::Error>>().await
    });
    let failure = fails_in(simulation, Check::FinalState.name());
    assert_eq!(failure.message, "ConfigMap default/a-copy is missing; without faults it exists");
    assert_eq!(failure.faults.len(), 1, "{failure}");
}

#[test]
fn writes_must_stop() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let maps = maps(context.client());
        for number in 0_u64.. {
            let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beat"}, "data": {"beat": number.to_string()}});
            maps.patch("beat", &PatchParams::apply("test"), &Patch::Apply(&patch)).await?;
            pause(30).await;
        }
        Ok::<(), kube::Error>(())
    });
    fails_in(simulation, Check::WritesStop.name());
}

/// The program deletes what it has seen with the label `old`, some time later and by name only.
#[test]
fn deletions_must_not_hit_another_object() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let maps = maps(context.client());
        loop {
            for old in maps.list(&ListParams::default().labels("role=old")).await? {
                pause(5).await;
                drop(maps.delete(&name_of(&old), &DeleteParams::default()).await);
            }
            pause(1).await;
        }
        #[expect(unreachable_code, reason = "names the type of errors")]
        Ok::<(), kube::Error>(())
    })
    .scenario(|world| async move {
        world.create(&map("a", "old")).await?;
        world.sleep(Duration::from_millis(1_500)).await;
        world.delete::<ConfigMap>("default", "a").await?;
        world.create(&map("a", "new")).await
    });
    let failure = fails_in(simulation, Check::DeletedIncarnation.name());
    assert!(failure.message.contains("It has seen uid"), "{failure}");
}

fn with_owner(owner: &serde_json::Value) -> Simulation {
    let owner = owner.clone();
    Simulation::new(move |context: ProgramContext| {
        let owner = owner.clone();
        async move {
            let maps = maps(context.client());
            let found = loop {
                match maps.get_opt("owner").await? {
                    Some(found) => break found,
                    None => pause(1).await,
                }
            };
            let mut reference =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": found.metadata.uid});
            for (name, value) in owner.as_object().unwrap() {
                reference[name] = value.clone();
            }
            let mut child = map("child", "child");
            child.metadata.owner_references = Some(vec![serde_json::from_value(reference).unwrap()]);
            let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": child.metadata});
            maps.patch("child", &PatchParams::apply("test"), &Patch::Apply(&patch)).await?;
            std::future::pending::<Result<(), kube::Error>>().await
        }
    })
    .scenario(|world| async move { world.create(&map("owner", "owner")).await })
}

#[test]
fn owner_references_must_be_right() {
    with_owner(&json!({})).seeds(0..20).run();
    for (wrong, expected) in [
        (json!({"uid": "11111111-1111-1111-1111-111111111111"}), "which no object has or had"),
        (json!({"name": "another"}), "has the uid of ConfigMap owner"),
    ] {
        let failure = fails_in(with_owner(&wrong), Check::OwnerReferences.name());
        assert!(failure.message.contains(expected), "{failure}");
    }
}

#[test]
fn owners_in_other_namespaces_are_wrong() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let owner = maps(context.client()).get("owner").await?;
        let mut child = map("child", "child");
        child.metadata.namespace = Some("kube-public".to_owned());
        let reference =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid});
        child.metadata.owner_references = Some(vec![serde_json::from_value(reference).unwrap()]);
        let children: Api<ConfigMap> = Api::namespaced(context.client(), "kube-public");
        children.create(&PostParams::default(), &child).await?;
        std::future::pending::<Result<(), kube::Error>>().await
    })
    .setup(|server| drop(server.create(&json_map("owner")).unwrap()));
    let failure = fails_in(simulation, Check::OwnerReferences.name());
    assert!(failure.message.contains("is to another namespace, default"), "{failure}");
}

fn json_map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

/// The garbage collector deletes orphans, so the program keeps one alive with a finalizer that is never removed; it
/// is reported as an orphan if the check of finalizers is off.
#[test]
fn orphans_and_leaked_finalizers_are_found() {
    let simulation = || {
        Simulation::new(|_: ProgramContext| std::future::pending::<()>())
            .setup(|server| {
                let owner = server.create(&json_map("owner")).unwrap();
                let mut child = json_map("child");
                child["metadata"]["finalizers"] = json!(["example.com/never-removed"]);
                child["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
                server.create(&child).unwrap();
            })
            .scenario(|world| async move { world.delete::<ConfigMap>("default", "owner").await })
    };
    let failure = fails_in(simulation(), Check::Finalizers.name());
    let expected =
        "ConfigMap default/child waits for its deletion, with the finalizers example.com/never-removed";
    assert_eq!(failure.message, expected);
    let failure = fails_in(simulation().without_check(Check::Finalizers), Check::Orphans.name());
    assert_eq!(failure.message, "ConfigMap default/child exists, but its owner ConfigMap owner does not");
}

#[test]
fn panics_are_found_even_if_they_are_caught() {
    let simulation = Simulation::new(|_: ProgramContext| async {
        let handler = tokio::spawn(async { panic!("no such key") });
        drop(handler.await);
        std::future::pending::<()>().await;
    });
    let failure = fails_in(simulation, Check::Panics.name());
    assert!(failure.message.starts_with("no such key ("), "{failure}");
}

#[test]
fn queues_of_registered_informers_are_bounded() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        let mut events = factory.informer::<ConfigMap>().handler().name("slow").event_stream();
        factory.start();
        drop(events.next().await);
        // Reads no more events.
        std::future::pending::<()>().await;
    })
    .scenario(two_sources);
    let failure = fails_in(simulation, Check::Queues.name());
    assert!(failure.message.ends_with("although nothing changes"), "{failure}");
}

#[test]
fn long_queues_are_found_while_the_program_runs() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        let _events = factory.informer::<ConfigMap>().handler().name("slow").event_stream();
        factory.start();
        std::future::pending::<()>().await;
    })
    .scenario(|world| async move {
        for name in ["a", "b", "c", "d", "e"] {
            world.create(&map(name, "source")).await?;
            world.sleep(Duration::from_secs(1)).await;
        }
        Ok::<(), Status>(())
    });
    let failure = fails_in(simulation.queue_limit(2), Check::Queues.name());
    assert!(failure.message.starts_with("3 events wait for the handler"), "{failure}");
}

/// Bug: objects that were deleted and created again within one step were recorded as one object, so that references to
/// the first one had a uid "which no object has or had".
#[test]
fn every_incarnation_of_an_object_is_known() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let maps = maps(context.client());
        let mut owner = None;
        while owner.is_none() {
            owner = maps.get_opt("owner").await?;
            pause(1).await;
        }
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner.and_then(|owner| owner.metadata.uid)});
        pause(1).await;
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "child", "ownerReferences": [reference]}});
        drop(maps.patch("child", &PatchParams::apply("test"), &Patch::Apply(&child)).await);
        std::future::pending::<Result<(), kube::Error>>().await
    })
    .scenario(|world| async move {
        world.create(&map("owner", "x")).await?;
        world.sleep(Duration::from_secs(1)).await;
        for _ in 0..3 {
            world.server().delete("v1", "configmaps", Some("default"), "owner")?;
            world.server().create(&map("owner", "x"))?;
        }
        Ok::<(), Status>(())
    });
    // The garbage collector deletes the child of the first incarnation, unless the program has seen the last one.
    simulation.without_check(Check::FinalState).seeds(0..100).run();
}

/// Bug: a definition that is changed was read again with the same versions, which was taken for a wrong history.
#[test]
fn changed_definition_is_no_wrong_history() {
    let widgets = crate::coverage::widgets();
    let simulation = Simulation::new(|_: ProgramContext| std::future::pending::<()>())
        .setup(move |server| {
            server.create(&widgets).unwrap();
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
            server.create(&widget).unwrap();
        })
        .scenario(|world| async move {
            world.sleep(Duration::from_secs(1)).await;
            let (group, plural) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
            let mut definition = world.server().get(group, plural, None, "widgets.example.com").unwrap();
            definition["spec"]["names"]["shortNames"] = json!(["wi"]);
            world.server().update(&definition).map(drop)
        });
    simulation.seeds(0..5).run();
}

/// The server is restored from a backup, so that versions go back.
#[test]
fn versions_must_grow() {
    let simulation = copy_simulation().scenario(|world| async move {
        world.create(&map("a", "source")).await?;
        let backup = world.server().backup();
        world.modify::<ConfigMap>("default", "a", |map| map.immutable = Some(true)).await?;
        world.sleep(Duration::from_secs(1)).await;
        world.server().restore(&backup);
        Ok::<(), Status>(())
    });
    let failure = fails_in(simulation, Check::VersionHistory.name());
    assert!(failure.message.starts_with("configmaps default/a: version"), "{failure}");
}

/// An actor that deletes copies with a label that the scenario sets.
#[test]
fn actors_of_users_take_part() {
    struct Cleaner;
    impl Actor for Cleaner {
        fn name(&self) -> &'static str {
            "cleaner"
        }

        fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<jiff::Timestamp> {
            for map in cluster.list("v1", "configmaps", Some("default")) {
                if map["metadata"]["labels"]["role"] == "garbage" {
                    cluster.delete(&map).unwrap();
                }
            }
            None
        }
    }
    let simulation = || {
        Simulation::new(|_: ProgramContext| std::future::pending::<()>())
            .scenario(|world| async move { world.create(&map("a", "garbage")).await })
            .eventually("there is no garbage", |state: &State| {
                state.get::<ConfigMap>("default", "a").is_none()
            })
    };
    simulation().actor(|| Cleaner).seeds(0..10).run();
    fails_in(simulation(), "there is no garbage");
}

#[test]
fn checks_and_faults_can_be_switched_off() {
    let beat = || {
        Simulation::new(|context: ProgramContext| async move {
            let maps = maps(context.client());
            for number in 0_u64.. {
                let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beat"}, "data": {"beat": number.to_string()}});
                drop(maps.patch("beat", &PatchParams::apply("test"), &Patch::Apply(&patch)).await);
                pause(100).await;
            }
        })
        .without_check(Check::WritesStop)
        .without_check(Check::FinalState)
        .settle_timeout(Duration::from_secs(400))
    };
    let summary = beat().only_faults(&[FaultKind::Restart]).seeds(0..30).run();
    assert!(summary.coverage.fired(FaultKind::Restart) > 10);
    assert_eq!(summary.coverage.fired(FaultKind::Outage), 0);
    let summary = beat().without_fault(FaultKind::Restart).seeds(0..30).run();
    assert_eq!(summary.coverage.fired(FaultKind::Restart), 0);
}
