//! State outside of the cluster that survives restarts of the program.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// State outside of the program and of the cluster, for example a database. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct External(Arc<Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>>);

impl External {
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        value.downcast().unwrap_or_default()
    }
}

impl std::fmt::Debug for External {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("External")
    }
}
