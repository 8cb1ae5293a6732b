//! A robust mutex that a thread holds for as long as it lives: the hard channel for threads that we did not make.
//!
//! The kernel marks it when its owner ends, however it ends: after a raw exit system call too (measured).

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mutex, at an address that stays: the kernel finds it through a list that the owner keeps.
struct Place(UnsafeCell<MaybeUninit<libc::pthread_mutex_t>>);

/// A thread's sign of life.
pub struct Sentinel {
    place: &'static Place,
    gone: AtomicBool,
}

// SAFETY: the mutex is only touched through pthread calls, which are made for use by several threads.
unsafe impl Send for Sentinel {}
// SAFETY: as above.
unsafe impl Sync for Sentinel {}

impl std::fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sentinel").field("gone", &self.gone).finish_non_exhaustive()
    }
}

impl Sentinel {
    /// Of the calling thread. It must not be asked for twice by one thread and forgotten in between.
    ///
    /// # Errors
    /// When the C library makes no robust mutexes.
    pub fn of_this_thread() -> io::Result<Sentinel> {
        let place: &'static Place = Box::leak(Box::new(Place(UnsafeCell::new(MaybeUninit::zeroed()))));
        let mutex: *mut libc::pthread_mutex_t = place.0.get().cast();
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: `attributes` is initialized by the first call and destroyed by the last; `mutex` points to memory
        // that is never freed while it is locked (see `drop`), and is initialized before it is locked.
        let code = unsafe {
            let mut code = libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            if code == 0 {
                code = libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
                if code == 0 {
                    code = libc::pthread_mutex_init(mutex, attributes.as_ptr());
                }
                libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
            }
            if code == 0 {
                code = libc::pthread_mutex_lock(mutex);
            }
            code
        };
        // On an error the few bytes stay allocated: it does not happen with any C library that we run on.
        if code == 0 {
            Ok(Sentinel { place, gone: AtomicBool::new(false) })
        } else {
            Err(io::Error::from_raw_os_error(code))
        }
    }

    /// Whether the thread is gone. From any thread but its own.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        if self.gone.load(Ordering::Acquire) {
            return true;
        }
        let mutex: *mut libc::pthread_mutex_t = self.place.0.get().cast();
        // SAFETY: the mutex is initialized and its memory is there for as long as `self`.
        let code = unsafe { libc::pthread_mutex_trylock(mutex) };
        if code != libc::EOWNERDEAD && code != 0 {
            return false;
        }
        // Now it is ours: made whole and given back, or it would be on our own list.
        // SAFETY: as above, and the calling thread holds it.
        unsafe {
            if code == libc::EOWNERDEAD {
                libc::pthread_mutex_consistent(mutex);
            }
            libc::pthread_mutex_unlock(mutex);
        }
        self.gone.store(true, Ordering::Release);
        true
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // While its owner lives, the owner's list points to it: then the few bytes are left where they are.
        if !self.is_gone() {
            return;
        }
        let place = std::ptr::from_ref(self.place).cast_mut();
        // SAFETY: `place` came from `Box::leak`, its owner is gone, nobody holds the mutex, and `self` ends here.
        unsafe {
            libc::pthread_mutex_destroy((*place).0.get().cast());
            drop(Box::from_raw(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::thread;
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[test]
    fn it_tells_a_raw_exit_from_a_long_life() {
        for raw in [true, false] {
            let (give, given) = channel();
            let (hold, held) = channel::<()>();
            std::thread::spawn(move || {
                give.send(Sentinel::of_this_thread().unwrap()).unwrap();
                assert!(held.recv().is_err());
                if raw {
                    thread::raw_exit();
                }
            });
            let sentinel = given.recv().unwrap();
            assert!(!sentinel.is_gone());
            drop(hold);
            let deadline = Instant::now() + Duration::from_secs(10);
            while !sentinel.is_gone() {
                assert!(Instant::now() < deadline);
                std::thread::yield_now();
            }
            assert!(sentinel.is_gone());
        }
    }
}
