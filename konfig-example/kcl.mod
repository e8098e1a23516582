[package]
name = "konfig"
edition = "v0.13.0"
version = "0.1.0"
description = "The example monorepo of Konverge: applications as code over shared models"
