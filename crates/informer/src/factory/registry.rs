//! Which informers a factory has, with which options, and who keeps them alive.
//!
//! Invariants: at most one engine per kind, form and selection that is not stopping; what a view settled for a kind stays so for as long as
//! the view lives, also when the engine itself comes and goes.

use crate::error::ConfigError;
use crate::resource::ResourceType;
use crate::shared::{DetachTarget, DetachedListener, Engine, InformerOptions, SelectionKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::Handle;

/// What makes two calls get the same informer.
type Identity = (ResourceType, SelectionKey);

/// One choice of objects: the defaults of its calls, and the kinds that were settled.
pub(super) struct FactoryView {
    /// What this view chooses from, if it was made from another.
    parent: Option<Arc<FactoryView>>,
    /// The settings of every kind that has none of its own; of a view that was made from another, only what it chooses.
    defaults: InformerOptions,
    /// The options of each kind that was configured or asked for.
    resolved_options: Mutex<BTreeMap<ResourceType, InformerOptions>>,
}

pub(super) struct Registry {
    client: kube::Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    life: RunState,
    informers: BTreeMap<Identity, Informer>,
    /// Informers that somebody stopped and that were replaced by another.
    stopping: Vec<Weak<Engine>>,
    /// Handlers without a registration, and their informers: they live as long as the factory.
    detached: Vec<(Arc<Engine>, DetachedListener)>,
}

#[derive(Default, Clone)]
enum RunState {
    #[default]
    NotStarted,
    /// On this runtime.
    Started(Handle),
    ShutDown,
}

struct Informer {
    options: InformerOptions,
    /// Its options were given by `configure`, and stay when it goes.
    configured: bool,
    living: Weak<Engine>,
    /// Until the start the factory keeps it.
    kept_until_start: Option<Arc<Engine>>,
}

impl FactoryView {
    pub(super) fn new(defaults: InformerOptions) -> Self {
        Self { parent: None, defaults, resolved_options: Mutex::default() }
    }

    /// A view of another choice; in everything else, kinds are what they are in `parent`.
    pub(super) fn choosing(parent: Arc<Self>, choice: InformerOptions) -> Self {
        Self { parent: Some(parent), defaults: choice.selection_only(), resolved_options: Mutex::default() }
    }

    /// Puts the options of a kind right.
    fn override_resolved(&self, resource: &ResourceType, options: InformerOptions) -> InformerOptions {
        self.lock().insert(resource.clone(), options.clone());
        options
    }

    /// The options of a kind: those it has, or these from now on.
    fn resolve(&self, resource: &ResourceType, options: impl FnOnce() -> InformerOptions) -> InformerOptions {
        self.lock().entry(resource.clone()).or_insert_with(options).clone()
    }

    /// What a kind has if nothing is said about it here.
    fn defaults(&self, resource: &ResourceType) -> InformerOptions {
        let defaults = self.defaults.clone();
        let Some(parent) = &self.parent else { return defaults };
        let settled = parent.lock().get(resource).cloned();
        defaults.or(&settled.unwrap_or_else(|| parent.defaults(resource)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceType, InformerOptions>> {
        self.resolved_options.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, state: Mutex::default() }
    }

    pub(super) fn configure(
        &self,
        view: &FactoryView,
        resource: &ResourceType,
        options: InformerOptions,
        cluster_scoped: bool,
    ) -> Result<(), ConfigError> {
        let wanted = scoped(options.or(&view.defaults(resource)), cluster_scoped);
        let identity = (resource.clone(), wanted.selection());
        // One after another, so that what is refused has changed nothing.
        let mut state = self.lock();
        let mut settled = view.lock();
        let known = settled.get(resource).map(|options| scoped(options.clone(), cluster_scoped));
        // Another view may have settled the same choice of objects otherwise.
        let shared = state.informers.get(&identity).map(|informer| &informer.options);
        if let Some(option) = known.iter().chain(shared).find_map(|known| known.difference(&wanted)) {
            return Err(ConfigError::AlreadyConfigured { kind: resource.name().into(), option });
        }
        settled.insert(resource.clone(), wanted.clone());
        state.informers.entry(identity).or_insert_with(|| Informer::new(wanted)).configured = true;
        Ok(())
    }

    /// The engine for a kind as a view sees it. After the start it is started.
    pub(super) fn engine(
        self: &Arc<Self>,
        view: &FactoryView,
        resource: &ResourceType,
        cluster_scoped: bool,
    ) -> Arc<Engine> {
        let options = view.resolve(resource, || scoped(view.defaults(resource), cluster_scoped));
        // A dynamic call does not know that a kind has no namespace, and may have settled it before.
        let options =
            if cluster_scoped { view.override_resolved(resource, scoped(options, true)) } else { options };
        let identity = (resource.clone(), options.selection());
        let (engine, life) = self.find(&identity, options.clone()).unwrap_or_else(|options| {
            // Made without a lock, since what the options hold is called for it. Somebody may be faster.
            let made = Engine::new(Some(self.client.clone()), resource, InformerOptions::clone(&options));
            self.adopt(identity.clone(), *options, made)
        });
        match life {
            RunState::NotStarted => {}
            RunState::Started(runtime) => engine.start(&runtime),
            RunState::ShutDown => engine.cancel_start(),
        }
        engine
    }

    /// The engine that lives, or else the options for a new one.
    fn find(
        &self,
        identity: &Identity,
        options: InformerOptions,
    ) -> Result<(Arc<Engine>, RunState), Box<InformerOptions>> {
        let mut state = self.lock();
        // Choices that nobody uses any more, and nobody configured, are forgotten: there may be one per tenant.
        state.informers.retain(|_, informer| informer.configured || informer.living.strong_count() > 0);
        let life = state.life.clone();
        let informer = state.informers.entry(identity.clone()).or_insert_with(|| Informer::new(options));
        let engine = informer.live_engine().ok_or_else(|| Box::new(informer.options.clone()))?;
        Ok((engine, life))
    }

    /// Makes an engine the one of its identity, unless there is one by now.
    fn adopt(
        self: &Arc<Self>,
        identity: Identity,
        options: InformerOptions,
        made: Arc<Engine>,
    ) -> (Arc<Engine>, RunState) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let informer = state.informers.entry(identity).or_insert_with(|| Informer::new(options));
        if let Some(engine) = informer.live_engine() {
            return (engine, state.life.clone());
        }
        // One that was stopped may still be telling what it has; a shutdown waits for it too. Its detached handlers end with it.
        state.stopping.retain(|engine| engine.strong_count() > 0);
        state.stopping.push(std::mem::replace(&mut informer.living, Arc::downgrade(&made)));
        let keeper: Weak<dyn DetachTarget> = Arc::downgrade(&(Arc::clone(self) as Arc<dyn DetachTarget>));
        let _ = made.keeper.set(keeper);
        if matches!(state.life, RunState::NotStarted) {
            informer.kept_until_start = Some(Arc::clone(&made));
        }
        let (ended, detached) =
            std::mem::take(&mut state.detached).into_iter().partition(|(engine, _)| engine.has_stopped());
        state.detached = detached;
        let life = state.life.clone();
        drop(guard);
        drop::<Vec<_>>(ended);
        (made, life)
    }

    pub(super) fn start(&self) {
        // Whatever starts later starts here too, whichever thread asks for it. Without a runtime this panics before anything is changed.
        let runtime = Handle::current();
        let mut state = self.lock();
        if !matches!(state.life, RunState::NotStarted) {
            return;
        }
        state.life = RunState::Started(runtime.clone());
        let kept: Vec<_> =
            state.informers.values_mut().filter_map(|informer| informer.kept_until_start.take()).collect();
        drop(state);
        for engine in &kept {
            engine.start(&runtime);
        }
    }

    pub(super) fn is_started(&self) -> bool {
        !matches!(self.lock().life, RunState::NotStarted)
    }

    /// Nothing starts any more. Returns everything that is to be stopped.
    pub(super) fn shutdown(&self) -> Vec<Arc<Engine>> {
        let mut state = self.lock();
        state.life = RunState::ShutDown;
        let living = state.informers.values().map(|informer| &informer.living);
        let engines = living.chain(&state.stopping).filter_map(Weak::upgrade).collect();
        // What was kept, or detached, ends with the factory's work.
        let kept: Vec<_> =
            state.informers.values_mut().filter_map(|informer| informer.kept_until_start.take()).collect();
        let detached = std::mem::take(&mut state.detached);
        drop(state);
        drop((kept, detached));
        engines
    }

    /// The informers that live, ordered by what they are about.
    pub(super) fn engines(&self) -> Vec<Arc<Engine>> {
        self.lock().informers.values().filter_map(|informer| informer.living.upgrade()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Informer {
    fn new(options: InformerOptions) -> Self {
        Self { options, configured: false, living: Weak::new(), kept_until_start: None }
    }

    /// The engine, unless somebody has stopped it or it broke: then it is no use to whoever asks now.
    fn live_engine(&self) -> Option<Arc<Engine>> {
        self.living.upgrade().filter(|engine| !engine.has_stopped())
    }
}

/// Namespaces do not concern what has none.
fn scoped(options: InformerOptions, cluster_scoped: bool) -> InformerOptions {
    if cluster_scoped { options.all_namespaces() } else { options }
}

impl DetachTarget for Registry {
    fn adopt_detached(&self, engine: Arc<Engine>, listener: DetachedListener) {
        let mut state = self.lock();
        if !matches!(state.life, RunState::ShutDown) {
            state.detached.push((engine, listener));
        }
    }
}

/// With the factory its detached handlers end. They may hold listers of their own informers, which would otherwise never end.
impl Drop for Registry {
    fn drop(&mut self) {
        // What is let go may be anything, so no lock is held.
        let detached = std::mem::take(&mut self.lock().detached);
        for (engine, listener) in &detached {
            engine.drop_detached(listener);
        }
    }
}
