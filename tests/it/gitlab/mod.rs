//! The client against a fake GitLab that knows no more than what GitLab publishes of its API, and `konverge ci` in its
//! jobs.

mod bad_input;
mod changes;
mod component;
mod jobs;
mod operations;
mod people;
mod proposals;
mod publishing;
mod runs;
