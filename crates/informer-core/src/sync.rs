//! Publication of snapshots: a cell to which a single writer publishes and from which readers load.
//!
//! Readers never wait for the writer. With the feature `shuttle` the cell is built from shuttle's
//! primitives instead, so that tests can run many interleavings of publish and load; the rest of the crate
//! is unaffected.

#[cfg(not(feature = "shuttle"))]
mod cell {
    use arc_swap::ArcSwap;
    use std::sync::Arc;

    /// A cell with the most recently published value.
    #[derive(Debug)]
    pub(crate) struct Published<T>(ArcSwap<T>);

    impl<T> Published<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(ArcSwap::from_pointee(value))
        }

        /// Calls `read` with the current value, without incrementing its reference count.
        pub(crate) fn with<R>(&self, read: impl FnOnce(&Arc<T>) -> R) -> R {
            read(&self.0.load())
        }

        /// Publishes `value` and returns the previous one.
        pub(crate) fn swap(&self, value: T) -> Arc<T> {
            self.0.swap(Arc::new(value))
        }
    }
}

#[cfg(feature = "shuttle")]
mod cell {
    use shuttle::sync::Mutex;
    use std::sync::Arc;

    #[derive(Debug)]
    pub(crate) struct Published<T>(Mutex<Arc<T>>);

    impl<T> Published<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Mutex::new(Arc::new(value)))
        }

        pub(crate) fn with<R>(&self, read: impl FnOnce(&Arc<T>) -> R) -> R {
            let Ok(value) = self.0.lock().map(|value| Arc::clone(&value)) else {
                unreachable!("no code panics while it holds this lock")
            };
            read(&value)
        }

        pub(crate) fn swap(&self, value: T) -> Arc<T> {
            let Ok(mut current) = self.0.lock() else {
                unreachable!("no code panics while it holds this lock")
            };
            std::mem::replace(&mut current, Arc::new(value))
        }
    }
}

pub(crate) use cell::Published;
