//! The one place where threads meet: a cell that a single writer publishes to and readers load from.
//!
//! Readers never wait for the writer. With the feature `shuttle` the cell is built from that tool's primitives instead, so
//! that the tests can run many interleavings of publish and load; nothing else in the crate knows the difference.

#[cfg(not(feature = "shuttle"))]
mod cell {
    use arc_swap::ArcSwap;
    use std::sync::Arc;

    /// Holds the newest published value.
    #[derive(Debug)]
    pub(crate) struct Published<T>(ArcSwap<T>);

    impl<T> Published<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(ArcSwap::from_pointee(value))
        }

        /// Looks at the newest value without taking a share of it.
        pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
            look(&self.0.load())
        }

        /// Publishes a value and returns the one before.
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

        pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
            let Ok(value) = self.0.lock().map(|value| Arc::clone(&value)) else {
                unreachable!("no holder of this lock can panic")
            };
            look(&value)
        }

        pub(crate) fn swap(&self, value: T) -> Arc<T> {
            let Ok(mut held) = self.0.lock() else { unreachable!("no holder of this lock can panic") };
            std::mem::replace(&mut held, Arc::new(value))
        }
    }
}

pub(crate) use cell::Published;
