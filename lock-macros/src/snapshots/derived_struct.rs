#[automatically_derived]
#[allow(deprecated)]
impl<'a, T: Train> ::lock_runtime::LockKey for Seat<'a, T>
where
    T: Copy,
    &'a T: ::lock_runtime::LockKey,
{
    fn write_parts(
        &self,
        __name: &mut ::lock_runtime::NameParts,
    ) -> ::lock_runtime::__private::KeyResult {
        match self {
            Self { train: __part0, number: __part1, .. } => {
                <&'a T as ::lock_runtime::LockKey>::write_parts(__part0, __name)?;
                <u32 as ::lock_runtime::LockKey>::write_parts(__part1, __name)?;
            }
        }
        ::lock_runtime::__private::Ok(())
    }
}
