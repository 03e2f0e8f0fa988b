//! The reflector drivers of an engine, one per scope.

use super::options::InformerOptions;
use super::parts::EngineParts;
use super::persist::PersistTask;
use crate::delta_queue::DeltaQueue;
use crate::reflector::ReflectorDriver;
use crate::resource::ResourceType;
use crate::source::QueryParameters;
use informer_core::Scope;
use informer_core::reflector::{Config, ShardedReflector};
use std::sync::Arc;

/// Creates the driver of each scope's reflector; none without a client and without a source.
pub(super) fn drivers(
    parts: &EngineParts<'_>,
    resource: &ResourceType,
    options: &InformerOptions,
    parameters: &QueryParameters,
    queue: &Arc<DeltaQueue>,
    configure: impl Fn(&mut Config),
    mut persist_task: Option<&mut PersistTask>,
) -> Vec<ReflectorDriver> {
    let throughput = options.throughput();
    let mut driver = |(scope_index, scope): (usize, Scope)| {
        let source = options.source_of(parts.client, resource, &scope, parameters, &throughput)?;
        let mut config = options.config(resource, scope);
        configure(&mut config);
        let saved = persist_task.as_mut().map(|task| task.add_scope(config.clone()));
        // The seed is only for jitter, which spreads the requests of a server's clients over time.
        let seed = options.seed_of(&parts.diagnostics.resource, scope_index);
        Some(ReflectorDriver {
            machine: ShardedReflector::new(config, seed, Some(parts.reader.clone())),
            source,
            throughput: throughput.clone(),
            sample: None,
            queue: Arc::clone(queue),
            status: Arc::clone(parts.status),
            diagnostics: parts.diagnostics.clone(),
            scope_index,
            clock: parts.clock,
            stop: parts.stop.clone(),
            saved,
            shard: options.shard().map(|shard| shard.group.clone()),
        })
    };
    options.scopes().into_iter().enumerate().filter_map(&mut driver).collect()
}
