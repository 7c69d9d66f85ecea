#[automatically_derived]
#[allow(deprecated)]
impl ::lock_runtime::LockKey for Room {
    fn write_parts(
        &self,
        __name: &mut ::lock_runtime::NameParts,
    ) -> ::lock_runtime::__private::KeyResult {
        match self {
            Self::Lobby { .. } => {
                ::lock_runtime::NameParts::part(__name, "Lobby")?;
            }
            Self::Numbered { 0: __part0, .. } => {
                ::lock_runtime::NameParts::part(__name, "Numbered")?;
                <u32 as ::lock_runtime::LockKey>::write_parts(__part0, __name)?;
            }
            Self::r#Suite { floor: __part0, wing: __part1, .. } => {
                ::lock_runtime::NameParts::part(__name, "Suite")?;
                <u8 as ::lock_runtime::LockKey>::write_parts(__part0, __name)?;
                <char as ::lock_runtime::LockKey>::write_parts(__part1, __name)?;
            }
        }
        ::lock_runtime::__private::Ok(())
    }
}
