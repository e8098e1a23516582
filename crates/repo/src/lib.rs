//! The monorepo as it stands in git: trees ([`git`]), projects and stacks ([`konfig`]), and which stacks a change affects
//! ([`affected`]).

pub mod affected;
pub mod git;
pub mod konfig;
