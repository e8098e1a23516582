//! [`PackageFetcher`]: fetches the dependencies of `kcl.mod` from git repositories and OCI registries.
//!
//! Each package is fetched once into a folder that all runs share. `kcl.mod.lock` pins it by the checksum of its
//! contents, by the commit of its repository, or by both. Each run verifies the checksum again. A package that no lock
//! pins is looked up once in a run, if the code is trusted; the caller reports what was found, and caches no result
//! that depends on it. Only this process uses the network; the compiler reads the folder.

mod bounds;
mod checksum;
mod fetcher;
mod git;
mod lock_entry;
mod lock_file;
mod lock_update;
mod oci;
mod package_folder;
mod resolved_package;
mod resolver;
mod source;
mod trust;
mod unpack;

pub use self::{
    bounds::Bounds,
    fetcher::{PackageFetcher, UnlockedPackages, VerifiedPackages},
    lock_entry::PathEntry,
    lock_update::LockUpdate,
    oci::platform,
    package_folder::{clear_packages, packages_use},
    resolved_package::{ResolvedPackage, UnlockedPackage},
    trust::{KnownPackages, PackageTrust},
};
