//! The registry: the informers of a factory, their options, and the references that keep them alive.
//!
//! Invariants: per kind, representation and selection there is at most one engine that is not stopping; the
//! options that a view resolved for a kind stay the same for as long as the view exists, even if the engine
//! is dropped and created again. Single exception: the namespaces of a kind that turns out to be
//! cluster-scoped.

use crate::error::ConfigError;
use crate::resource::ResourceType;
use crate::shared::{DetachTarget, DetachedListener, Engine, InformerOptions, Selection, SelectionKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::Handle;

/// The identity of an informer: calls with equal identities share one informer.
type Identity = (ResourceType, SelectionKey);

/// A view of a factory: its default options and selection, and the options it resolved for each kind.
pub(super) struct FactoryView {
    /// The view from which this one was created by `select`.
    parent: Option<Arc<FactoryView>>,
    /// The options of kinds that were not configured; in a view with a parent, only the selection.
    defaults: InformerOptions,
    /// The options of each kind that was configured or requested.
    resolved_options: Mutex<BTreeMap<ResourceType, InformerOptions>>,
}

pub(super) struct Registry {
    client: kube::Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    run: RunState,
    informers: BTreeMap<Identity, Informer>,
    /// Engines that were stopped and replaced by a new one, and may still deliver pending events.
    stopping: Vec<Weak<Engine>>,
    /// Detached handlers and their informers, which the factory keeps alive.
    detached: Vec<(Arc<Engine>, DetachedListener)>,
}

#[derive(Default, Clone)]
enum RunState {
    #[default]
    NotStarted,
    /// Started; informers that are requested later start on this runtime.
    Started(Handle),
    ShutDown,
}

/// The options of one informer, and its engine if there is one.
struct Informer {
    options: InformerOptions,
    /// Whether the options were given to `configure`; they are then kept when the engine is dropped.
    configured: bool,
    engine: Weak<Engine>,
    /// Keeps the engine alive until the factory is started.
    kept_until_start: Option<Arc<Engine>>,
}

impl FactoryView {
    pub(super) fn new(defaults: InformerOptions) -> Self {
        Self { parent: None, defaults, resolved_options: Mutex::default() }
    }

    /// Creates a view with another selection; all other options of a kind are those of `parent`.
    pub(super) fn with_selection(parent: Arc<Self>, selection: Selection) -> Self {
        Self { parent: Some(parent), defaults: selection.into(), resolved_options: Mutex::default() }
    }

    /// Replaces the resolved options of a kind and returns them.
    fn override_resolved(&self, resource: &ResourceType, options: InformerOptions) -> InformerOptions {
        self.lock().insert(resource.clone(), options.clone());
        options
    }

    /// Returns the resolved options of a kind; if there are none, resolves them to the result of `options`.
    fn resolve(&self, resource: &ResourceType, options: impl FnOnce() -> InformerOptions) -> InformerOptions {
        self.lock().entry(resource.clone()).or_insert_with(options).clone()
    }

    /// Returns the options of a kind that was not configured in this view.
    fn defaults(&self, resource: &ResourceType) -> InformerOptions {
        let defaults = self.defaults.clone();
        let Some(parent) = &self.parent else { return defaults };
        let resolved = parent.lock().get(resource).cloned();
        defaults.or(&resolved.unwrap_or_else(|| parent.defaults(resource)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceType, InformerOptions>> {
        self.resolved_options.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, state: Mutex::default() }
    }

    pub(super) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Fixes the options of a kind in a view. Options that are not set are taken from the view.
    pub(super) fn configure(
        &self,
        view: &FactoryView,
        resource: &ResourceType,
        options: InformerOptions,
        cluster_scoped: bool,
    ) -> Result<(), ConfigError> {
        let wanted = adapt_to_scope(options.or(&view.defaults(resource)), cluster_scoped);
        let identity = (resource.clone(), wanted.selection_key());
        // Both locks are held until the end, so that a rejected call changes nothing.
        let mut state = self.lock();
        let mut resolved = view.lock();
        let known = resolved.get(resource).map(|options| adapt_to_scope(options.clone(), cluster_scoped));
        // Another view may have resolved the same selection to other options.
        let shared = state.informers.get(&identity).map(|informer| &informer.options);
        if let Some(option) = known.iter().chain(shared).find_map(|known| known.difference(&wanted)) {
            return Err(ConfigError::AlreadyConfigured { kind: resource.name().into(), option });
        }
        resolved.insert(resource.clone(), wanted.clone());
        state.informers.entry(identity).or_insert_with(|| Informer::new(wanted)).configured = true;
        Ok(())
    }

    /// Returns the engine for a kind in a view, and starts it if the factory is started.
    pub(super) fn engine(
        self: &Arc<Self>,
        view: &FactoryView,
        resource: &ResourceType,
        cluster_scoped: bool,
    ) -> Arc<Engine> {
        let options = view.resolve(resource, || adapt_to_scope(view.defaults(resource), cluster_scoped));
        // An earlier dynamic call may have resolved the kind without knowing that it is cluster-scoped.
        let options = if cluster_scoped {
            view.override_resolved(resource, adapt_to_scope(options, cluster_scoped))
        } else {
            options
        };
        let identity = (resource.clone(), options.selection_key());
        let (engine, run_state) =
            self.find_or_register(&identity, options.clone()).unwrap_or_else(|options| {
                // Created without holding the lock, because the constructor calls functions in the options.
                // Another thread may register an engine meanwhile.
                let new = Engine::new(Some(self.client.clone()), resource, InformerOptions::clone(&options));
                self.adopt(identity.clone(), *options, new)
            });
        match run_state {
            RunState::NotStarted => {}
            RunState::Started(runtime) => engine.start(&runtime),
            RunState::ShutDown => engine.stop(),
        }
        engine
    }

    /// Returns the live engine with this identity, or the options for a new engine. If the identity is
    /// unknown, registers it with `options`.
    fn find_or_register(
        &self,
        identity: &Identity,
        options: InformerOptions,
    ) -> Result<(Arc<Engine>, RunState), Box<InformerOptions>> {
        let mut state = self.lock();
        // Removes selections that are neither used nor configured: a program may create one per tenant.
        state.informers.retain(|_, informer| informer.configured || informer.engine.strong_count() > 0);
        let run_state = state.run.clone();
        let informer = state.informers.entry(identity.clone()).or_insert_with(|| Informer::new(options));
        let engine = informer.live_engine().ok_or_else(|| Box::new(informer.options.clone()))?;
        Ok((engine, run_state))
    }

    /// Registers a new engine under its identity, unless another one was registered meanwhile; returns the
    /// registered one.
    fn adopt(
        self: &Arc<Self>,
        identity: Identity,
        options: InformerOptions,
        new: Arc<Engine>,
    ) -> (Arc<Engine>, RunState) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let informer = state.informers.entry(identity).or_insert_with(|| Informer::new(options));
        if let Some(engine) = informer.live_engine() {
            return (engine, state.run.clone());
        }
        // The replaced engine may still deliver pending events, so a shutdown of the factory waits for it
        // too. Its detached handlers end with it.
        state.stopping.retain(|engine| engine.strong_count() > 0);
        state.stopping.push(std::mem::replace(&mut informer.engine, Arc::downgrade(&new)));
        let target: Weak<dyn DetachTarget> = Arc::downgrade(&(Arc::clone(self) as Arc<dyn DetachTarget>));
        let _ = new.detach_target.set(target);
        if matches!(state.run, RunState::NotStarted) {
            informer.kept_until_start = Some(Arc::clone(&new));
        }
        let (ended, detached) =
            std::mem::take(&mut state.detached).into_iter().partition(|(engine, _)| engine.has_stopped());
        state.detached = detached;
        let run_state = state.run.clone();
        drop(guard);
        // Dropped without the lock, because destructors of handlers may call the factory.
        drop::<Vec<_>>(ended);
        (new, run_state)
    }

    pub(super) fn start(&self) {
        // Later informers start on this runtime too, whichever thread requests them. Outside a runtime this
        // panics before anything changes.
        let runtime = Handle::current();
        let mut state = self.lock();
        if !matches!(state.run, RunState::NotStarted) {
            return;
        }
        state.run = RunState::Started(runtime.clone());
        let unstarted: Vec<_> =
            state.informers.values_mut().filter_map(|informer| informer.kept_until_start.take()).collect();
        drop(state);
        for engine in &unstarted {
            engine.start(&runtime);
        }
    }

    /// Returns whether the factory is started or shut down.
    pub(super) fn is_started(&self) -> bool {
        !matches!(self.lock().run, RunState::NotStarted)
    }

    /// Prevents further starts, releases unstarted engines and detached handlers, and returns the engines
    /// that the caller must stop.
    pub(super) fn shutdown(&self) -> Vec<Arc<Engine>> {
        let mut state = self.lock();
        state.run = RunState::ShutDown;
        let current = state.informers.values().map(|informer| &informer.engine);
        let engines = current.chain(&state.stopping).filter_map(Weak::upgrade).collect();
        let unstarted: Vec<_> =
            state.informers.values_mut().filter_map(|informer| informer.kept_until_start.take()).collect();
        let detached = std::mem::take(&mut state.detached);
        drop(state);
        // Dropped without the lock, because destructors of handlers may call the factory.
        drop((unstarted, detached));
        engines
    }

    /// Returns the existing engines, ordered by kind and selection.
    pub(super) fn engines(&self) -> Vec<Arc<Engine>> {
        self.lock().informers.values().filter_map(|informer| informer.engine.upgrade()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Informer {
    fn new(options: InformerOptions) -> Self {
        Self { options, configured: false, engine: Weak::new(), kept_until_start: None }
    }

    /// Returns the engine, unless it was dropped, stopped, or ended by a panic.
    fn live_engine(&self) -> Option<Arc<Engine>> {
        self.engine.upgrade().filter(|engine| !engine.has_stopped())
    }
}

/// Removes the namespaces from the options if the kind is cluster-scoped, whose shards are always decided by uid.
fn adapt_to_scope(options: InformerOptions, cluster_scoped: bool) -> InformerOptions {
    if cluster_scoped { options.all_namespaces().sharded_by_uid() } else { options }
}

impl DetachTarget for Registry {
    fn adopt_detached(&self, engine: Arc<Engine>, listener: DetachedListener) {
        let mut state = self.lock();
        if !matches!(state.run, RunState::ShutDown) {
            state.detached.push((engine, listener));
        }
    }
}

/// Ends the detached handlers. They may hold listers of their own informers, which would otherwise run
/// forever.
impl Drop for Registry {
    fn drop(&mut self) {
        // Without the lock, because destructors of handlers may call the factory.
        let detached = std::mem::take(&mut self.lock().detached);
        for (engine, listener) in &detached {
            engine.drop_detached(listener);
        }
    }
}
