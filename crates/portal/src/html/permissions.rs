//! The page of permissions: who may do what, according to `konverge.yaml` on the default branch.

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    parts::{code, commit, line},
};
use crate::{Permission, PermissionSubject, PermissionsDocument, site_path};
use konverge_forge::RepositoryPages;

/// Renders the page of permissions. A document of `None` means that there is no default branch to read from.
pub fn permissions(
    document: Option<&PermissionsDocument>,
    forge: Option<&RepositoryPages>,
    mode: PageMode,
) -> String {
    let main = html! {
        @match document {
            None => p.notice { "There is no default branch here, so the permissions are unknown. Build the pages in a clone." },
            Some(document) => {
                p.facts {
                    "From " (code("konverge.yaml")) " of the default branch"
                    @if let Some(id) = &document.commit { " at commit " (commit(id, forge)) }
                    ". What the forge itself allows (branch protection, environments, who may merge) is not in it."
                }
                @for subject in PermissionSubject::ALL {
                    @let lines: Vec<_> = document.permissions.iter().filter(|line| line.subject == subject).collect();
                    @if !lines.is_empty() { (section(subject, &lines)) }
                }
            }
        }
    };
    Page::new("Who may do what", site_path::PERMISSIONS, mode, main).render()
}

fn section(subject: PermissionSubject, permissions: &[&Permission]) -> Markup {
    html! {
        section {
            h2 { (subject.words()) }
            ul.rows {
                @for permission in permissions {
                    li.row {
                        @if permission.who.is_empty() {
                            span.name { (line(&permission.may)) }
                        } @else {
                            span.name { (line(&permission.who.join(", "))) } ": " (line(&permission.may))
                        }
                        p.facts {
                            "Stacks " @for (index, glob) in permission.stacks.iter().enumerate() { @if index > 0 { ", " } (code(glob)) }
                            " · " (code(&permission.key))
                        }
                    }
                }
            }
        }
    }
}
