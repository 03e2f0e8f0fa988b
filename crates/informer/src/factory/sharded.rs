//! Informers of the objects for which this process acts.

use super::SharedInformerFactory;
use crate::shard::ShardGroup;
use crate::shared::Selection;

impl SharedInformerFactory {
    /// Returns a view of this factory whose informers cache only the objects for which this process acts as a member of
    /// the group.
    ///
    /// The group must run ([`ShardGroup::run`], or
    /// [`Manager::add_shard_group`](crate::manager::Manager::add_shard_group)): until then, the informers contain nothing.
    ///
    /// - Objects come and go when ranges move. One that belongs to another process from now on is delivered as
    ///   [`Delivery::Released`](crate::handler::Delivery::Released), never as deleted. Closures and event streams receive it
    ///   only after [`HandlerBuilder::with_releases`](crate::handler::HandlerBuilder::with_releases). A range does not wait
    ///   for running handlers: that of the next process may begin before they have returned.
    /// - An informer is synced when it has listed the ranges that the process had first, or when the group has settled and
    ///   the process has none. [`InformerStatus::complete_ranges`](crate::status::InformerStatus::complete_ranges) tells
    ///   what it contains.
    /// - Objects of cluster-scoped kinds are divided by uid. A kind that is only known at run time, and whose scope is
    ///   unknown, counts as namespaced.
    /// - A [saved cache](crate::InformerOptions) is not used, and handlers cannot be durable.
    ///
    /// A controller of such a view is rejected when it runs: use [`Controller::sharded`](crate::controller::Controller::sharded)
    /// with the factory itself.
    ///
    /// ```no_run
    /// use informer::SharedInformerFactory;
    /// use informer::shard::ShardGroup;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let group = ShardGroup::builder(client.clone(), "shop", "exporter").build()?;
    /// let factory = SharedInformerFactory::new(client);
    /// let pods = factory.sharded(&group).informer::<Pod>();
    /// # let _ = pods;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sharded(&self, group: &ShardGroup) -> Self {
        self.select(Selection::default().shard(group.handle().clone(), group.shard_by().property()))
    }
}
