//! Threads made through a C-ABI entry, and the hard channel that needs no file: `pthread_tryjoin_np`.
//!
//! `JoinHandle::is_finished()` stays false for ever after a raw exit system call, and `pthread_exit` inside a
//! `std::thread` aborts the process (both measured). A thread made here may be left by either, and `tryjoin` says so.
//! There is no cancelling: a cancelled thread leaves its locks and its half-done work behind.

use std::ffi::{CString, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a thread runs.
pub type Body = Box<dyn FnOnce() + Send>;

/// The entry of a foreign thread: it may leave by `pthread_exit`.
pub type ForeignEntry = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A foreign entry with its argument, moved to the thread that runs it.
pub struct Foreign {
    entry: ForeignEntry,
    argument: *mut c_void,
}

// SAFETY: the maker of the value promised (`Foreign::new`) that the argument may be used from another thread.
unsafe impl Send for Foreign {}

impl Foreign {
    /// A C function to run on a thread of its own.
    ///
    /// # Safety
    /// `entry` may be called once with `argument`, from another thread, at any later time.
    #[must_use]
    pub unsafe fn new(entry: ForeignEntry, argument: *mut c_void) -> Foreign {
        Foreign { entry, argument }
    }
}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Foreign").finish_non_exhaustive()
    }
}

/// A thread that was not joined yet. Dropped alive, it is detached: it cannot be ended from outside.
#[derive(Debug)]
pub struct Thread {
    id: Option<libc::pthread_t>,
}

struct ForeignStart {
    before: Body,
    foreign: Foreign,
    after: Box<dyn FnOnce(usize) + Send>,
}

/// Starts a thread. A panic that leaves `body` ends the thread and nothing else: catch it inside to keep its text.
///
/// # Errors
/// What `pthread_create` says: EAGAIN when the limit of threads or of memory is reached.
pub fn spawn(name: &str, stack: usize, body: Body) -> io::Result<Thread> {
    extern "C" fn entry(argument: *mut c_void) -> *mut c_void {
        // SAFETY: `create` hands over a pointer from `Box::into_raw` of this type, once.
        let (name, body) = *unsafe { Box::from_raw(argument.cast::<(String, Body)>()) };
        set_name(&name);
        drop(name);
        // The text was kept by whoever cares; dropping a payload may panic once more.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            drop(catch_unwind(AssertUnwindSafe(|| drop(payload))));
        }
        std::ptr::null_mut()
    }
    create(stack, entry, Box::into_raw(Box::new((name.to_owned(), body))).cast()).map_err(|(error, argument)| {
        // SAFETY: no thread took the pointer.
        drop(unsafe { Box::from_raw(argument.cast::<(String, Body)>()) });
        error
    })
}

/// Starts a thread that runs foreign code: `before`, then the foreign entry, then `after` with what it returned (as a
/// number). When the code leaves by `pthread_exit` or by the raw system call, `after` does not run.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_foreign(
    stack: usize,
    before: Body,
    foreign: Foreign,
    after: Box<dyn FnOnce(usize) + Send>,
) -> io::Result<Thread> {
    // No frame between the foreign code and the start of the thread may catch or hold anything: `pthread_exit` unwinds
    // through here, and a catch in its way aborts the process.
    extern "C-unwind" fn entry(argument: *mut c_void) -> *mut c_void {
        // SAFETY: `create` hands over a pointer from `Box::into_raw` of this type, once.
        let ForeignStart { before, foreign, after } = *unsafe { Box::from_raw(argument.cast::<ForeignStart>()) };
        before();
        let after = Box::into_raw(Box::new(after));
        // SAFETY: promised by the maker of `Foreign`; it is consumed here, so the entry runs once.
        let returned = unsafe { (foreign.entry)(foreign.argument) };
        // SAFETY: the pointer is the one of three lines above; it leaks when the entry does not return.
        let after = unsafe { Box::from_raw(after) };
        after(returned.addr());
        std::ptr::null_mut()
    }
    // SAFETY: the two function types differ only in whether an unwind may leave the function, and the C library's
    // start routine is built to be unwound into by `pthread_exit`.
    let entry = unsafe {
        std::mem::transmute::<extern "C-unwind" fn(*mut c_void) -> *mut c_void, extern "C" fn(*mut c_void) -> *mut c_void>(
            entry,
        )
    };
    let start = Box::new(ForeignStart { before, foreign, after });
    create(stack, entry, Box::into_raw(start).cast()).map_err(|(error, argument)| {
        // SAFETY: no thread took the pointer.
        drop(unsafe { Box::from_raw(argument.cast::<ForeignStart>()) });
        error
    })
}

fn create(
    stack: usize,
    entry: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<Thread, (io::Error, *mut c_void)> {
    // SAFETY: all zeros is storage enough for `pthread_attr_init`, which makes it valid.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let mut id: libc::pthread_t = 0;
    // SAFETY: `attributes` and `id` are valid and writable; attributes are initialized before use and destroyed after;
    // `entry` takes over `argument` only when the call succeeds. A stack size that the C library refuses leaves its
    // default in place.
    let code = unsafe {
        let mut code = libc::pthread_attr_init(&raw mut attributes);
        if code == 0 {
            libc::pthread_attr_setstacksize(&raw mut attributes, stack);
            code = libc::pthread_create(&raw mut id, &raw const attributes, entry, argument);
            libc::pthread_attr_destroy(&raw mut attributes);
        }
        code
    };
    if code == 0 { Ok(Thread { id: Some(id) }) } else { Err((io::Error::from_raw_os_error(code), argument)) }
}

impl Thread {
    /// Whether the thread is gone. The first yes gives its stack back.
    pub fn is_gone(&mut self) -> bool {
        let Some(id) = self.id else { return true };
        // SAFETY: `id` came from `pthread_create` and was neither joined nor detached: both take it out of `self`.
        let gone = unsafe { libc::pthread_tryjoin_np(id, std::ptr::null_mut()) } == 0;
        if gone {
            self.id = None;
        }
        gone
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // SAFETY: as in `is_gone`.
            unsafe { libc::pthread_detach(id) };
        }
    }
}

/// The kernel's number of the calling thread.
#[must_use]
pub fn own_tid() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Names the calling thread, cut to the 15 bytes that Linux keeps.
pub fn set_name(name: &str) {
    let mut end = name.len().min(15);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    if let Ok(name) = CString::new(&name[..end]) {
        // SAFETY: a valid C string of at most 16 bytes, and the calling thread's own handle. It cannot fail then.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    }
}

/// Asks for more of the CPU for the calling thread (a nice value below 0). Whether it was granted.
pub fn set_nice(nice: i32) -> bool {
    // PRIO_PROCESS with a tid means that thread alone on Linux.
    let tid = libc::id_t::try_from(own_tid()).unwrap_or(0);
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, nice) == 0 }
}

/// Leaves the calling thread by the raw system call: no destructor runs. What a C library may do to us, for tests.
pub fn raw_exit() -> ! {
    loop {
        // SAFETY: ends this thread; nothing on its stack is used by anyone else by the caller's choice to call this.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    fn until_gone(thread: &mut Thread) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !thread.is_gone() {
            assert!(Instant::now() < deadline, "the thread is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_is_gone_after_its_body_a_panic_or_a_raw_exit() {
        let bodies: [Body; 3] =
            [Box::new(|| ()), Box::new(|| std::panic::resume_unwind(Box::new("x"))), Box::new(|| raw_exit())];
        for body in bodies {
            until_gone(&mut spawn("short", 1 << 16, body).unwrap());
        }
        let (hold, held) = channel::<()>();
        let mut thread = spawn("held", 1 << 16, Box::new(move || assert!(held.recv().is_err()))).unwrap();
        assert!(!thread.is_gone());
        drop(hold);
        until_gone(&mut thread);
    }

    #[test]
    fn foreign_code_may_leave_by_pthread_exit() {
        unsafe extern "C-unwind" {
            fn pthread_exit(value: *mut c_void) -> !;
        }
        unsafe extern "C-unwind" fn leaves(_: *mut c_void) -> *mut c_void {
            // SAFETY: ends this thread, which has nothing to drop.
            unsafe { pthread_exit(std::ptr::null_mut()) }
        }
        unsafe extern "C-unwind" fn returns(argument: *mut c_void) -> *mut c_void {
            argument
        }
        let (said, heard) = channel();
        for (entry, expected) in [(leaves as ForeignEntry, None), (returns as ForeignEntry, Some(7))] {
            let said = said.clone();
            // SAFETY: both take any argument.
            let foreign = unsafe { Foreign::new(entry, std::ptr::without_provenance_mut(7)) };
            let after = Box::new(move |value| said.send(value).unwrap());
            until_gone(&mut spawn_foreign(1 << 16, Box::new(|| ()), foreign, after).unwrap());
            assert_eq!(heard.try_recv().ok(), expected);
        }
    }
}
