# Writes OUTPUT: a table {name, text} of FOLDER/NAME.cuh for the NAMES. Comments at the head of
# a file stay: the text is for people too. A raw string is limited to 64 KiB by some compilers,
# so a file is written as several, split at its functions. The suffix tells the length: a compiler that had to count
# would reach the limit of steps of a constant.
set(out "")
foreach(name ${NAMES})
  file(READ "${FOLDER}/${name}.cuh" text)
  string(REPLACE "\n// ---- " ")~lathe~\"\nR\"~lathe~(\n// ---- " text "${text}")
  string(APPEND out "{\"${name}\", R\"~lathe~(${text})~lathe~\"sv},\n")
endforeach()
file(WRITE "${OUTPUT}" "${out}")
