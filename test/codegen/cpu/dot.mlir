// RUN: %lathe-translate --tile-to-llvm %s | llc -O3 -mcpu=x86-64-v3 | FileCheck %s
// Products of 16-bit integers, two neighbours added into 32 bits, are an instruction of x86: it cannot
// saturate, as those of 8 bits may. Groups of four 8-bit lanes have the general form there.

// CHECK-LABEL: pairs:
// CHECK: vpmovsxbw
// CHECK: vpmaddwd
// CHECK-NEXT: vpaddd
// CHECK: ret
func.func @pairs(%acc: memref<?xi32>, %a: memref<?xi16>, %b: memref<?xi8>) attributes {tile.kernel = #tile.launch<threads = 1, target = "x86-64-v3">} {
  %c0 = arith.constant 0 : index
  %0 = tile.load %acc[%c0] : memref<?xi32> -> vector<8xi32>
  %1 = tile.load %a[%c0] : memref<?xi16> -> vector<16xi16>
  %2 = tile.load %b[%c0] : memref<?xi8> -> vector<16xi8>
  %3 = arith.extsi %2 : vector<16xi8> to vector<16xi16>
  %4 = tile.dot %0, %1, %3 : vector<8xi32>, vector<16xi16>
  tile.store %4, %acc[%c0] : vector<8xi32>, memref<?xi32>
  return
}

// CHECK-LABEL: fours:
// CHECK: vpmovsxbd
// CHECK-NOT: vpmaddubsw
// CHECK: ret
func.func @fours(%acc: memref<?xi32>, %a: memref<?xi8>, %b: memref<?xi8>) attributes {tile.kernel = #tile.launch<threads = 1, target = "x86-64-v3">} {
  %c0 = arith.constant 0 : index
  %0 = tile.load %acc[%c0] : memref<?xi32> -> vector<8xi32>
  %1 = tile.load %a[%c0] : memref<?xi8> -> vector<32xi8>
  %2 = tile.load %b[%c0] : memref<?xi8> -> vector<32xi8>
  %3 = tile.dot %0, %1, %2 : vector<8xi32>, vector<32xi8>
  tile.store %3, %acc[%c0] : vector<8xi32>, memref<?xi32>
  return
}
