//! Contexts for calling a reconcile function in a unit test.

use super::complete_list;
use crate::controller::{Context, TestSettings};
use crate::discovery::DynamicResource;
use crate::factory::SharedInformerFactory;
use crate::shared::Engine;
use informer_core::Key;
use kube::Resource;
use kube::core::DynamicObject;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Returns a builder for the context of one reconcile, so that a test can call a reconcile function directly.
///
/// Every kind that the reconcile reads is given with [`objects`](ContextBuilder::objects), and counts as a
/// source of the controller. Reads return these objects, whatever the reconcile writes; for the reconcile after
/// a write, build another context. Writes go through `client`, usually a [`client`](super::client()) that
/// records them. The field manager is `test`, and there is no leader election.
///
/// ```
/// use informer::controller::{Context, Outcome};
/// use informer::{Error, Key, testing};
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
///
/// /// The code under test: every deployment has a config map.
/// async fn reconcile(key: Key, ctx: Context) -> Result<Outcome, Error> {
///     let Some(deployment) = ctx.lister::<Deployment>().get_by_key(&key) else { return Ok(Outcome::Done) };
///     if ctx.lister::<ConfigMap>().get_by_key(&key).is_none() {
///         let mut map = ConfigMap::default();
///         map.metadata.name = Some(key.name().to_owned());
///         ctx.apply(&deployment, map).await?;
///     }
///     Ok(Outcome::Done)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let (client, requests) = testing::client(|request| testing::ok(&request.body)); // written as sent
/// let mut deployment = Deployment::default();
/// deployment.metadata.namespace = Some("shop".to_owned());
/// deployment.metadata.name = Some("web".to_owned());
/// deployment.metadata.uid = Some("1".to_owned());
/// let ctx = testing::context(client, Key::new("shop", "web"))
///     .objects([deployment])
///     .objects::<ConfigMap>([]) // none exists yet
///     .build();
///
/// assert_eq!(reconcile(ctx.key().clone(), ctx).await?, Outcome::Done);
/// let writes = requests.writes();
/// assert_eq!(writes.len(), 1);
/// assert_eq!(writes[0].to_string(), "PATCH /api/v1/namespaces/shop/configmaps/web");
/// assert_eq!(writes[0].body["metadata"]["ownerReferences"][0]["kind"], "Deployment");
/// # Ok(())
/// # }
/// ```
pub fn context(client: kube::Client, key: Key) -> ContextBuilder {
    let settings = TestSettings { key, retries: 0, sources: Vec::new() };
    ContextBuilder { factory: SharedInformerFactory::new(client), settings, state: () }
}

/// A builder for a [`Context`], returned by [`context`].
#[must_use = "call build() to create the context"]
pub struct ContextBuilder<S = ()> {
    factory: SharedInformerFactory,
    settings: TestSettings,
    state: S,
}

impl<S> ContextBuilder<S> {
    /// Sets all cached objects of a kind, which [`Context::lister`] returns.
    ///
    /// A reconcile that reads another kind panics, so that a test cannot forget one: a kind without objects is
    /// given as `objects::<ConfigMap>([])`. The metadata of a kind, `PartialObjectMeta<K>`, is a kind of its
    /// own.
    ///
    /// # Panics
    ///
    /// Panics if a value has no type or name, or if the objects of the kind are already set.
    pub fn objects<K>(self, values: impl IntoIterator<Item = K>) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize + Send + Sync + 'static,
    {
        let engine = self.factory.engine_of::<K>();
        self.fill(engine, values)
    }

    /// Sets all cached objects of a kind that is known only at run time, which [`Context::dynamic_lister`]
    /// returns.
    ///
    /// # Panics
    ///
    /// Panics like [`objects`](Self::objects).
    pub fn dynamic_objects(
        self,
        resource: &impl DynamicResource,
        values: impl IntoIterator<Item = DynamicObject>,
    ) -> Self {
        let engine = Arc::clone(self.factory.dynamic_informer(resource).engine());
        self.fill(engine, values)
    }

    /// Sets the state that [`Context::state`] returns.
    pub fn state<N>(self, state: N) -> ContextBuilder<N> {
        let Self { factory, settings, .. } = self;
        ContextBuilder { factory, settings, state }
    }

    /// Sets the number of earlier retries, [`Context::retries`]. Defaults to 0.
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = retries;
        self
    }

    /// Returns the context.
    pub fn build(self) -> Context<S> {
        Context::for_test(self.factory, self.settings, self.state)
    }

    fn fill<K>(mut self, engine: Arc<Engine>, values: impl IntoIterator<Item = K>) -> Self
    where
        K: Serialize + Send + Sync + 'static,
    {
        let is_set = self.settings.sources.iter().any(|known| Arc::ptr_eq(known, &engine));
        assert!(!is_set, "the objects of {} are already set", engine.kind.name());
        engine.fill(complete_list(values));
        self.settings.sources.push(engine);
        self
    }
}

impl<S> fmt::Debug for ContextBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextBuilder").field("key", &self.settings.key).finish_non_exhaustive()
    }
}
