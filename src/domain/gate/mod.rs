//! May this be done? Judges whole batches, and keeps what waits for a person's word.
//!
//! Pure: facts about files come in with the wish, time as an argument. No [`docket::Permit`] leaves a [`docket::Docket`] while one
//! question of the batch is open: the batch rule is a return type. A question leaves the line here and comes back
//! here; an answer fits one (call, input, facts, epoch) and nothing else, and the first answer counts.
//!
//! # A shell command, and what remains unseen
//!
//! `shell` takes a command apart; `peel`, `reach` and `carry` find what it runs besides itself, `written` what it writes,
//! `tree` what it reads as a whole, `removal` and `danger` what no rule was meant for, `shift` and `told` what an earlier command
//! of the line does to the paths and the words of a later one. By design it stays a reading of the text:
//!
//! - What a file holds is not read: a script, a Makefile, a package's scripts, a program. An allow for `make` is an allow
//!   for whatever the Makefile says, and a deny for `rm` does not reach into it.
//! - What only runs is not run: `told` puts in what the line itself sets (`d=.git; cp a $d/x`, a loop, `$(echo x)`). A
//!   name that is put together from anything else matches no allow, is asked about in every mode but
//!   `bypassPermissions`, and is seen by no deny.
//! - A variable that stands alone and that the line does not set (`rm -rf $dir`) is what somebody put into it: unset, it
//!   removes nothing. With a slash beside it, unset, it is the root, and is asked about.
//! - The programs and options on the lists are the well-known ones. One that is not there is judged by its rules and its
//!   mode; in `bypassPermissions` that is: allowed.
//! - Files that are named inside of an archive, a branch or a commit (`tar x`, `git checkout`) are not known; those of a
//!   patch that the line itself holds are.
//! - Reading `git`'s history (`git log -p`, `git show`) may print a denied file's former content unless it is named.
//! - Between the look at links and the start of a shell command links may change; `read_file` and `write_file` open
//!   exactly what was judged, a shell command opens what it likes.
//! - Searches of a folder that may hold what is denied are asked about, not denied: nobody here knows what lies there.

mod address;
mod argv;
pub mod breaker;
mod carry;
pub mod check;
mod danger;
pub mod decide;
pub mod docket;
mod matches;
mod meant;
mod pattern;
mod peel;
pub mod policy;
pub mod protected;
mod reach;
mod removal;
pub mod rule;
mod runs;
mod script;
mod shell;
mod shift;
mod told;
mod tree;
mod written;
