//! The client against a real Gitea, a story a file, and `konverge ci` on its events.

mod bad_input;
mod changes;
mod forgejo;
mod forgejo_jobs;
mod jobs;
mod markdown;
mod pages;
mod people;
mod proposals;
mod publishing;
mod runs;
