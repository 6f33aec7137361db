// RUN: %lathe-translate --tile-to-llvm %s | llc -O3 -mcpu=x86-64-v4 -mattr=+avx512vnni,+avxvnni | FileCheck %s
// Unsigned bytes by signed ones, four neighbours added into 32 bits: one instruction, which cannot saturate
// (vpdpbusd, not vpdpbusds), where the target has it.

// CHECK-LABEL: wide:
// CHECK: vpdpbusd {{.*}}zmm
// CHECK: ret
func.func @wide(%acc: memref<?xi32>, %a: memref<?xi8>, %b: memref<?xi8>) attributes {tile.kernel = #tile.launch<threads = 1, target = "x86-64-v4-vnni">} {
  %c0 = arith.constant 0 : index
  %0 = tile.load %acc[%c0] : memref<?xi32> -> vector<16xi32>
  %1 = tile.load %a[%c0] : memref<?xi8> -> vector<64xi8>
  %2 = tile.load %b[%c0] : memref<?xi8> -> vector<64xi8>
  %3 = tile.dot %0, %1 unsigned, %2 : vector<16xi32>, vector<64xi8>
  tile.store %3, %acc[%c0] : vector<16xi32>, memref<?xi32>
  return
}

// CHECK-LABEL: narrow:
// CHECK: vpdpbusd {{.*}}ymm
// CHECK: ret
func.func @narrow(%acc: memref<?xi32>, %a: memref<?xi8>, %b: memref<?xi8>) attributes {tile.kernel = #tile.launch<threads = 1, target = "x86-64-v3-vnni">} {
  %c0 = arith.constant 0 : index
  %0 = tile.load %acc[%c0] : memref<?xi32> -> vector<8xi32>
  %1 = tile.load %a[%c0] : memref<?xi8> -> vector<32xi8>
  %2 = tile.load %b[%c0] : memref<?xi8> -> vector<32xi8>
  %3 = tile.dot %0, %1 unsigned, %2 : vector<8xi32>, vector<32xi8>
  tile.store %3, %acc[%c0] : vector<8xi32>, memref<?xi32>
  return
}

// Elsewhere, and of two signed operands, the general form.
// CHECK-LABEL: general:
// CHECK-NOT: vpdpbus
// CHECK: vpmovzxbd
// CHECK-NOT: vpdpbus
// CHECK: ret
func.func @general(%acc: memref<?xi32>, %a: memref<?xi8>, %b: memref<?xi8>) attributes {tile.kernel = #tile.launch<threads = 1, target = "x86-64-v3">} {
  %c0 = arith.constant 0 : index
  %0 = tile.load %acc[%c0] : memref<?xi32> -> vector<8xi32>
  %1 = tile.load %a[%c0] : memref<?xi8> -> vector<32xi8>
  %2 = tile.load %b[%c0] : memref<?xi8> -> vector<32xi8>
  %3 = tile.dot %0, %1 unsigned, %2 : vector<8xi32>, vector<32xi8>
  tile.store %3, %acc[%c0] : vector<8xi32>, memref<?xi32>
  return
}
