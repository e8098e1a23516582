[package]
name = "billing_prod"
edition = "v0.13.0"
version = "0.1.0"

[dependencies]
konfig = { path = "../../.." }

[profile]
entries = ["../base/base.k", "main.k"]
